"""A transactional producer's states: the allowed transitions, and the effect of errors."""

import pytest

from moldau.core.producer.transaction_states import (
    MustAbortError,
    MustStopError,
    Phase,
    TransactionMisuseError,
    Transactions,
)
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import TopicPartition

PLACE = TopicPartition("t", 0)


def opened(*, is_second_protocol: bool = False) -> Transactions:
    state = Transactions()
    state.initialized(is_second_protocol=is_second_protocol)
    state.begin()
    return state


def test_partitions_are_added_at_the_coordinator_before_they_are_written() -> None:
    state = opened()
    assert not state.may_write(PLACE)
    assert state.pending == {PLACE}
    assert not state.must_be_ended
    state.added({PLACE})
    assert state.may_write(PLACE)
    assert state.must_be_ended


def test_in_the_second_protocol_brokers_add_partitions() -> None:
    state = opened(is_second_protocol=True)
    assert state.may_write(PLACE)
    assert state.pending == set()
    assert state.must_be_ended


def test_nothing_is_written_outside_of_a_transaction() -> None:
    state = Transactions()
    assert not state.may_write(PLACE)
    state.initialized(is_second_protocol=True)
    assert not state.may_write(PLACE)
    with pytest.raises(TransactionMisuseError, match="no transaction is open"):
        state.check_open("send")


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ],
)
def test_some_errors_mean_stop(code: ErrorCode) -> None:
    state = opened()
    assert isinstance(state.failed(KafkaError(code, "why")), MustStopError)
    for step in (state.begin, state.begin_commit, state.begin_abort):
        with pytest.raises(MustStopError, match="close this producer"):
            step()
    assert isinstance(state.failed(KafkaError(ErrorCode.INVALID_RECORD)), MustStopError)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_RECORD, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_AUTHORIZATION_FAILED],
)
def test_the_others_mean_abort(code: ErrorCode) -> None:
    state = opened()
    assert isinstance(state.failed(KafkaError(code, "why")), MustAbortError)
    with pytest.raises(MustAbortError, match="abort the transaction"):
        state.begin_commit()
    assert not state.may_write(PLACE)
    state.begin_abort()
    assert state.needs_new_epoch
    state.ended()
    assert state.phase is Phase.READY
    assert not state.needs_new_epoch
    state.begin()
