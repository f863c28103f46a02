"""auto.offset.reset: what its values mean and which are refused."""

import pytest

from moldau.core.consumer.resets import ResetKind, ResetPolicy, parse_reset
from moldau.protocol.enums import ListOffsetsTimestamp

NOW_MS = 1_000_000_000


@pytest.mark.parametrize("kind", ["earliest", "latest", "none"])
def test_names_are_read(kind: str) -> None:
    assert parse_reset(kind) == ResetPolicy(ResetKind(kind))


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("by_duration:P2D", 172_800_000),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P1DT0.5S", 86_400_500),
    ],
)
def test_durations_are_read(text: str, milliseconds: int) -> None:
    policy = parse_reset(text)
    assert policy == ResetPolicy(ResetKind.BY_DURATION, milliseconds)
    assert policy.timestamp(NOW_MS) == NOW_MS - milliseconds


def test_a_duration_from_before_the_epoch_means_everything() -> None:
    assert parse_reset("by_duration:P365D").timestamp(NOW_MS) == 0


@pytest.mark.parametrize(
    "text", ["", "oldest", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1M"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"auto\.offset\.reset"):
        parse_reset(text)


def test_both_ends_are_named_by_their_timestamps() -> None:
    assert parse_reset("earliest").timestamp(NOW_MS) == ListOffsetsTimestamp.EARLIEST
    assert parse_reset("latest").timestamp(NOW_MS) == ListOffsetsTimestamp.LATEST
