"""A resource's settings after AlterConfigs and IncrementalAlterConfigs."""

import pytest
from support.counted_text import CountedText

from moldau.config.alter import VALUE_LENGTH_MAX, Change, Operation, altered, replaced
from moldau.config.broker import BrokerConfig
from moldau.config.log import LogConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

TOPIC = LogConfig.declared


def test_values_are_set_and_deleted() -> None:
    current = {"segment.ms": "1", "flush.ms": "2"}
    changes = [
        Change("segment.ms", "9"),
        Change("flush.ms", None, Operation.DELETE),
        Change("retention.ms", "3"),
        Change("never.there", None, Operation.DELETE),
    ]
    assert altered(current, changes, TOPIC) == {"segment.ms": "9", "retention.ms": "3"}
    assert current == {"segment.ms": "1", "flush.ms": "2"}


@pytest.mark.parametrize(
    ("current", "operation", "value", "after"),
    [
        (None, Operation.APPEND, "compact", "delete,compact"),
        (None, Operation.APPEND, "delete", "delete"),
        ("", Operation.APPEND, "compact", "compact"),
        ("compact", Operation.APPEND, "delete,compact,delete", "compact,delete"),
        ("compact, delete", Operation.SUBTRACT, "compact", "delete"),
        ("compact,delete", Operation.SUBTRACT, "delete,other,compact", ""),
        (None, Operation.SUBTRACT, "delete", ""),
        ("delete,compact,delete", Operation.SUBTRACT, "delete", "compact,delete"),
    ],
)
def test_lists_grow_and_shrink(
    current: str | None, operation: Operation, value: str, after: str
) -> None:
    """Without a value of its own, a list begins as its default, which is delete here."""
    before = {} if current is None else {"cleanup.policy": current}
    changes = [Change("cleanup.policy", value, operation)]
    assert altered(before, changes, TOPIC) == {"cleanup.policy": after}


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.SUBTRACT])
def test_long_lists_are_changed_without_comparing_all_items(
    operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountedText, "comparisons", 0)
    name = "leader.replication.throttled.replicas"
    count = 1_000
    current = CountedText(",".join(f"{number}:1" for number in range(count)))
    given = CountedText(",".join(f"{number}:1" for number in range(count // 2, count * 3 // 2)))
    after = altered({name: current}, [Change(name, given, operation)], TOPIC)[name].split(",")
    assert CountedText.comparisons < 10 * count
    first, last = ("0:1", "1499:1") if operation is Operation.APPEND else ("0:1", "499:1")
    assert (after[0], after[-1]) == (first, last)


def test_a_value_has_room_in_a_metadata_record() -> None:
    current = {"ssl.cipher.suites": "\u20ac" * 10_000}
    longer = [Change("ssl.cipher.suites", "\u20ac" * 1_000, Operation.APPEND)]
    with pytest.raises(KafkaError, match="maximum value size"):
        altered(current, longer, BrokerConfig.declared)
    exact = [Change("a", "x" * VALUE_LENGTH_MAX)]
    assert altered({}, exact, TOPIC) == {"a": "x" * VALUE_LENGTH_MAX}


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (
            [Change("a", "1"), Change("a", "2")],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        ([Change("a", None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : a"),
        ([Change("a", None, Operation.APPEND)], ErrorCode.INVALID_REQUEST, "supported for : a"),
        ([Change("a", "1", 9)], ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        ([Change("a", "1", -1)], ErrorCode.INVALID_REQUEST, "Unknown operations type -1"),
        (
            [Change("segment.ms", "1", Operation.APPEND)],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key segment.ms because its type is not LIST.",
        ),
        (
            [Change("cleanup.polici", "x", Operation.SUBTRACT)],
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key cleanup.polici",
        ),
        (
            [Change("a", "x" * (VALUE_LENGTH_MAX + 1))],
            ErrorCode.INVALID_CONFIG,
            "maximum value size of 32767 bytes",
        ),
    ],
)
def test_impossible_changes_are_refused(
    changes: list[Change], code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        altered({}, changes, TOPIC)
    assert refused.value.code is code
    assert message in refused.value.detail


def test_the_older_request_replaces_everything() -> None:
    assert replaced([Change("a", "1"), Change("b", "2")]) == {"a": "1", "b": "2"}
    with pytest.raises(KafkaError, match="Null value not supported"):
        replaced([Change("a", None)])
