"""Outcomes of batches, as the records of a batch see them."""

import pytest

from moldau.core.producer.batching import Batch
from moldau.core.producer.outcomes import Failed, RecordMetadata, Written, is_done
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError


def batch(*, parts: list[Batch] | None = None) -> Batch:
    made = Batch("t", 3, 100)
    made.parts = parts
    return made


@pytest.mark.parametrize("outcome", [Written(40), Written(-1)])
def test_records_of_a_written_batch_have_no_error(outcome: Written | Failed) -> None:
    assert outcome.error_of(0) is None


def test_records_of_a_written_batch_have_consecutive_offsets() -> None:
    outcome = Written(40)
    assert outcome.metadata(batch(), 2, 1_000) == RecordMetadata("t", 3, 42, 1_000)


def test_a_broker_that_stamps_records_gives_all_of_them_its_time() -> None:
    assert Written(40, append_time_ms=7).metadata(batch(), 0, 1_000).timestamp == 7


def test_without_a_response_the_offset_is_unknown() -> None:
    assert Written(-1).metadata(batch(), 5, 1_000) == RecordMetadata("t", 3, -1, 1_000)


def test_all_records_of_a_failed_batch_have_its_error() -> None:
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert Failed(error).error_of(0) is error
    with pytest.raises(KafkaError) as raised:
        Failed(error).metadata(batch(), 0, 1_000)
    assert raised.value is error


def test_an_error_of_one_record_is_told_from_those_that_failed_with_it() -> None:
    outcome = Failed(KafkaError(ErrorCode.INVALID_RECORD), {1: "it has no key"})
    own, other = outcome.error_of(1), outcome.error_of(0)
    assert isinstance(own, KafkaError)
    assert isinstance(other, KafkaError)
    assert (own.code, own.detail) == (ErrorCode.INVALID_RECORD, "it has no key")
    assert "another record" in other.detail


def test_a_split_batch_is_done_when_all_of_its_parts_are() -> None:
    parts = [batch(), batch()]
    whole = batch(parts=parts)
    assert not is_done(whole)
    parts[0].outcome = Written(1)
    assert not is_done(whole)
    parts[1].outcome = Failed(KafkaError(ErrorCode.INVALID_RECORD))
    assert is_done(whole)
