"""Markers show whether a batch that Spark repeats was written before."""

import pytest

from moldau.core.spark.errors import StaleCheckpointError
from moldau.core.spark.exactly_once import (
    BatchMarker,
    BatchVerdict,
    digest_of,
    is_marker,
    read_marker,
    verdict_on,
    write_marker,
)

BATCH = BatchMarker("query", 4, "digest")


def committed(*markers: BatchMarker) -> list[str]:
    return [write_marker(one) for one in markers]


def test_a_marker_survives_a_round_trip() -> None:
    assert read_marker(write_marker(BATCH)) == BATCH


@pytest.mark.parametrize("text", ["", "hello", '{"moldauBatch":', '{"moldauBatch":"x"}', "{}"])
def test_metadata_of_other_commits_is_not_a_marker(text: str) -> None:
    assert read_marker(text) is None


def test_the_source_can_tell_a_sinks_progress_from_its_own() -> None:
    assert is_marker(write_marker(BATCH))
    assert not is_marker("")


def test_the_first_batch_of_a_query_is_written() -> None:
    assert verdict_on([], BATCH, "job") is BatchVerdict.WRITE
    assert verdict_on(["", "hello"], BATCH, "job") is BatchVerdict.WRITE


def test_the_next_batch_is_written() -> None:
    assert verdict_on(committed(BATCH._replace(batch_id=3)), BATCH, "job") is BatchVerdict.WRITE


def test_a_batch_that_is_committed_is_not_written_again() -> None:
    older = BATCH._replace(batch_id=3, digest="other")
    assert verdict_on(committed(older, BATCH), BATCH, "job") is BatchVerdict.SKIP


def test_a_new_query_starts_over() -> None:
    assert (
        verdict_on(committed(BATCH._replace(query_id="before")), BATCH, "job") is BatchVerdict.WRITE
    )


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (BATCH._replace(digest="other"), "batch 4 was committed with other offsets"),
        (BATCH._replace(batch_id=7), "batch 7 is committed, and the checkpoint begins at 4"),
    ],
)
def test_an_older_copy_of_a_checkpoint_is_refused(last: BatchMarker, message: str) -> None:
    with pytest.raises(StaleCheckpointError, match="'job'") as caught:
        verdict_on(committed(last), BATCH, "job")
    assert message in str(caught.value)
    assert "startingOffsets=group" in str(caught.value)


def test_the_digest_is_that_of_the_sources_offsets() -> None:
    assert digest_of(['{"a":{"0":5}}']) == digest_of(['{"a":{"0":5}}\n'])
    assert digest_of(['{"a":{"0":5}}']) != digest_of(['{"a":{"0":6}}'])
