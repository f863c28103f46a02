"""A producer's requests and its handling of responses, against a partition with a broker's
rules: whatever is lost on the way, every record is written once and in order.
"""

import contextlib
import sys
import threading
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.core.client.backoff import Backoff
from moldau.core.producer.batching import Appender, Batch, Hooks, Limits, TopicBuffers
from moldau.core.producer.partition_queue import Outgoing, ProducerIdentity
from moldau.core.producer.sending import Sending, SendRules, Verdict
from moldau.core.producer.splitting import halves
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.records.batches import RecordBatch
from moldau.types import PRODUCER_EPOCH_MAX, ProducerEpoch

TOPIC = "t"
IDENTITY = ProducerIdentity(7, ProducerEpoch(0))
RULES = SendRules(linger_ms=10, delivery_timeout_ms=1_000, backoff=Backoff(10, 50))


class Partition:
    """A broker's log: appends a batch with the next sequence, remembers five, refuses gaps."""

    def __init__(self, record_bytes_max: int = 1 << 20) -> None:
        self.values: list[bytes | None] = []
        self._epoch = -1
        self._next = 0
        self._recent: list[tuple[int, int]] = []
        self._batch_bytes_max = record_bytes_max

    def append(self, content: Any) -> ErrorCode:
        batch = RecordBatch(bytes(content))
        batch.check_crc()
        if batch.size_in_bytes > self._batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        if batch.producer_epoch < self._epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.producer_epoch > self._epoch:
            if batch.base_sequence != 0 and self._epoch >= 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self._epoch, self._next, self._recent = batch.producer_epoch, batch.base_sequence, []
        if (batch.base_sequence, batch.record_count) in self._recent:
            return ErrorCode.NONE
        if batch.base_sequence != self._next:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._next += batch.record_count
        self._recent = [*self._recent[-4:], (batch.base_sequence, batch.record_count)]
        self.values += [record.value for record in batch.records()]
        return ErrorCode.NONE


class Producing:
    """A `Sending` with one topic and a manual clock."""

    def __init__(self, rules: SendRules = RULES, *, batch_bytes: int = 120) -> None:
        self.sending = Sending(rules)
        self.now_ms = 0.0
        self.appender = Appender(
            Limits(batch_bytes, batch_bytes, record_bytes_max=1 << 20, memory_bytes=1 << 30),
            Hooks(
                now_ms=lambda: 0,
                wake=lambda: None,
                choose=lambda buffers: buffers.sticky,
                waiter=None,
                lock=contextlib.nullcontext(),
            ),
        )
        self.appender.add_topic(TopicBuffers(TOPIC, 4, True, True))
        self.sending.identified(IDENTITY)

    def send(self, value: bytes, partition: int = 0) -> Any:
        return self.appender.append(TOPIC, None, value, partition, 0, ())

    def take(self, room: int = 5) -> list[list[Outgoing]]:
        """The requests to send now."""
        self.sending.enqueue(self.appender.take_begun(), self.now_ms)
        left = [room]

        def has_room(_: int) -> bool:
            left[0] -= 1
            return left[0] >= 0

        found = []
        while requests := self.sending.plan(self.now_ms, lambda _: 1, has_room).requests:
            found += list(requests.values())
        return found

    def classify(self, outgoing: Outgoing, code: ErrorCode) -> Verdict:
        return self.sending.classify(outgoing, code, self.now_ms, 0.5)


def test_a_batch_lingers_until_it_is_full_or_its_time_expires() -> None:
    producer = Producing()
    producer.send(b"a")
    assert producer.take() == []
    plan = producer.sending.plan(producer.now_ms, lambda _: 1, lambda _: True)
    assert plan.next_ms == 10
    producer.now_ms = 10
    (request,) = producer.take()
    assert request[0].batch.count == 1
    producer.classify(request[0], ErrorCode.NONE)
    producer.send(bytes(60))
    (request,) = producer.take()
    assert request[0].batch.is_ready


def test_partitions_of_a_node_share_requests_and_their_size_is_bounded() -> None:
    producer = Producing(SendRules(linger_ms=0, request_bytes_max=1_000))
    for partition in range(4):
        producer.send(bytes(200), partition)
    sizes = [len(request) for request in producer.take()]
    assert sizes == [1, 1, 1, 1] or sum(sizes) == 4
    assert max(sizes) < 4


def test_nothing_is_sent_without_an_identity_or_a_leader() -> None:
    producer = Producing(SendRules(linger_ms=0))
    producer.sending.identity = None
    producer.send(b"a")
    assert producer.take() == []
    producer.sending.identified(IDENTITY)
    plan = producer.sending.plan(0, lambda _: None, lambda _: True)
    assert (plan.requests, plan.topics_without_leader) == ({}, {TOPIC})


def test_a_node_that_accepts_nothing_is_stalled_until_it_accepts_a_request() -> None:
    producer = Producing(SendRules(linger_ms=0))
    for moment in (5.0, 30.0):
        producer.now_ms = moment
        producer.send(bytes(200))
        assert producer.take(room=0) == []
        assert producer.sending.stalled_since_ms == {1: 5.0}
    assert len(producer.take(room=1)) == 1
    assert producer.sending.stalled_since_ms == {}


def test_a_node_is_not_stalled_when_its_waiting_batches_are_given_up() -> None:
    producer = Producing(SendRules(linger_ms=0, delivery_timeout_ms=100))
    producer.send(bytes(200))
    assert producer.take(room=0) == []
    producer.now_ms = 200
    assert len(producer.sending.expire(producer.now_ms)) == 1
    assert producer.take(room=0) == []
    assert producer.sending.stalled_since_ms == {}


def test_a_failed_batch_is_retried_first_and_alone_while_new_ones_wait() -> None:
    producer = Producing(SendRules(linger_ms=0, backoff=Backoff(10, 50)))
    for value in range(5):
        producer.send(bytes([value]) * 80)
    # Before the broker knows the producer, nothing may overtake the first batch.
    ((first,),) = producer.take()
    producer.classify(first, ErrorCode.NONE)
    requests = [request[0] for request in producer.take(2)]
    assert [outgoing.sequence for outgoing in requests] == [1, 2]
    assert producer.classify(requests[0], ErrorCode.NOT_ENOUGH_REPLICAS) is Verdict.RETRY
    assert producer.take() == []
    assert producer.classify(requests[1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    producer.now_ms = 100
    (again,) = producer.take()
    assert again == [requests[0]]
    assert producer.classify(requests[0], ErrorCode.NONE) is Verdict.DONE
    (again,) = producer.take()
    assert again == [requests[1]]
    producer.classify(requests[1], ErrorCode.NONE)
    assert [request[0].sequence for request in producer.take()] == [3, 4]


def test_a_gap_begins_a_new_epoch_on_that_partition_only() -> None:
    producer = Producing(SendRules(linger_ms=0))
    producer.send(b"a", 0)
    producer.send(b"b", 1)
    (request,) = producer.take()
    first, second = request
    assert producer.classify(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    assert producer.sending.identity == (7, 1)
    assert (first.identity, first.sequence) == ((7, 1), 0)
    assert (second.identity, second.sequence) == ((7, 0), 0)
    assert producer.classify(second, ErrorCode.NONE) is Verdict.DONE
    producer.send(b"c", 1)
    producer.now_ms = 1_000
    later = {
        outgoing.batch.partition: outgoing for request in producer.take() for outgoing in request
    }
    assert (later[1].identity, later[1].sequence) == ((7, 1), 0)


def test_the_last_epoch_is_followed_by_a_new_id() -> None:
    producer = Producing(SendRules(linger_ms=0))
    producer.sending.identified(ProducerIdentity(7, PRODUCER_EPOCH_MAX))
    producer.send(b"a")
    (request,) = producer.take()
    producer.classify(request[0], ErrorCode.UNKNOWN_PRODUCER_ID)
    assert producer.sending.identity is None
    producer.sending.identified(ProducerIdentity(8, ProducerEpoch(0)))
    producer.now_ms = 1_000
    (request,) = producer.take()
    assert (request[0].identity, request[0].sequence) == ((8, 0), 0)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, Verdict.DONE),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, Verdict.DONE),
        (ErrorCode.NETWORK_EXCEPTION, Verdict.RETRY),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Verdict.RETRY),
        (ErrorCode.INVALID_RECORD, Verdict.FAILED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.FAILED),
        (ErrorCode.MESSAGE_TOO_LARGE, Verdict.FAILED),
    ],
)
def test_verdicts_on_responses(code: ErrorCode, verdict: Verdict) -> None:
    producer = Producing(SendRules(linger_ms=0))
    producer.send(b"a")
    (request,) = producer.take()
    assert producer.classify(request[0], code) is verdict


def test_retries_are_limited_by_number_and_time() -> None:
    producer = Producing(SendRules(linger_ms=0, retries=1, backoff=Backoff(1, 1)))
    producer.send(b"a")
    (request,) = producer.take()
    assert producer.classify(request[0], ErrorCode.NETWORK_EXCEPTION) is Verdict.RETRY
    producer.now_ms = 10
    (request,) = producer.take()
    assert producer.classify(request[0], ErrorCode.NETWORK_EXCEPTION) is Verdict.TOO_LATE
    producer.send(b"b")
    producer.now_ms = 500_000
    producer.take()
    assert producer.sending.is_idle or producer.sending.expire(producer.now_ms + 500_000)


def test_a_batch_that_is_too_large_becomes_two_with_the_same_numbers() -> None:
    producer = Producing(SendRules(linger_ms=0), batch_bytes=2_000)
    for value in range(10):
        producer.send(bytes([value]) * 100)
    (request,) = producer.take()
    whole = request[0]
    producer.sending.content_of(whole)
    assert producer.classify(whole, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    parts = halves(whole.batch)
    producer.sending.split(whole, parts)
    assert [part.count for part in parts] == [5, 5]
    (first,) = producer.take()
    assert first[0].sequence == 0
    producer.classify(first[0], ErrorCode.NONE)
    (second,) = producer.take()
    assert second[0].sequence == 5


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 120), loss=st.floats(0, 0.6))
def test_every_record_is_written_once_and_in_order_despite_losses(
    seed: int, count: int, loss: float
) -> None:
    """Requests and answers are lost, brokers refuse for a while, batches are too large."""
    rng = Random(seed)
    rules = SendRules(linger_ms=5, delivery_timeout_ms=10**9, backoff=Backoff(5, 20))
    producer = Producing(rules, batch_bytes=rng.choice([80, 150, 400]))
    partitions = [Partition(rng.choice([200, 1 << 20])) for _ in range(2)]
    sent: list[list[bytes]] = [[], []]
    under_way: list[Outgoing] = []
    number = 0
    for _ in range(200_000):
        if number == count and producer.sending.is_idle and not producer.appender.take_begun():
            break
        producer.now_ms += rng.randrange(8)
        if number < count and rng.random() < 0.7:
            place = rng.randrange(2)
            value = b"%05d" % number * rng.randrange(1, 8)
            assert producer.send(value, place) is not None
            sent[place].append(value)
            number += 1
        for request in producer.take(5 - len(under_way)):
            for outgoing in request:
                producer.sending.content_of(outgoing)
                under_way.append(outgoing)
        if under_way and rng.random() < 0.6:
            _answer(producer, partitions, under_way.pop(0), rng, loss)
    else:
        pytest.fail("it does not end")
    assert [partition.values for partition in partitions] == sent


def _answer(
    producer: Producing, partitions: list[Partition], outgoing: Outgoing, rng: Random, loss: float
) -> None:
    """A request is lost, refused, or appended; then its answer may be lost."""
    code = ErrorCode.NETWORK_EXCEPTION
    chance = rng.random()
    if chance > loss:
        code = partitions[outgoing.batch.partition].append(producer.sending.content_of(outgoing))
        if rng.random() < loss / 2:
            code = ErrorCode.NETWORK_EXCEPTION
    elif chance > loss / 2:
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    if producer.classify(outgoing, code) is Verdict.SPLIT:
        producer.sending.split(outgoing, halves(outgoing.batch))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 80))
def test_expired_records_leave_no_duplicates_and_the_rest_in_order(seed: int, count: int) -> None:
    rng = Random(seed)
    rules = SendRules(linger_ms=0, delivery_timeout_ms=60, backoff=Backoff(5, 20))
    producer = Producing(rules, batch_bytes=80)
    partition = Partition()
    under_way: list[Outgoing] = []
    acknowledged: list[bytes | None] = []
    number = 0
    for _ in range(100_000):
        if number == count and producer.sending.is_idle and not producer.appender.take_begun():
            break
        producer.now_ms += rng.randrange(10)
        if number < count:
            producer.send(b"%05d" % number * 4)
            number += 1
        for request in producer.take(5 - len(under_way)):
            for outgoing in request:
                producer.sending.content_of(outgoing)
                under_way.append(outgoing)
        producer.sending.expire(producer.now_ms)
        if under_way and rng.random() < 0.5:
            outgoing = under_way.pop(0)
            code = ErrorCode.NETWORK_EXCEPTION
            if rng.random() < 0.6:
                code = partition.append(producer.sending.content_of(outgoing))
                if rng.random() < 0.3:
                    code = ErrorCode.NETWORK_EXCEPTION
            if producer.classify(outgoing, code) is Verdict.DONE:
                acknowledged += [
                    record.value for record in RecordBatch(bytes(outgoing.content or b"")).records()
                ]
    else:
        pytest.fail("it does not end")
    values = [value for value in partition.values if value is not None]
    assert len(set(values)) == len(values)
    assert values == sorted(values)
    assert set(acknowledged) <= set(values)


def test_users_threads_may_count_waiting_batches_while_partitions_become_active() -> None:
    producing = Producing()
    sending = producing.sending
    stop = threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            sending.enqueue([Batch(TOPIC, number % 500, 100)], 0)
            if number % 500 == 0:
                sending.drop_unsent()

    thread = threading.Thread(target=change)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(2_000):
            assert len(sending.waiting_by_partition(TOPIC, 500)) == 500
    finally:
        sys.setswitchinterval(before)
        stop.set()
        thread.join()


def sent_now(producing: Producing, value: bytes) -> Outgoing:
    """The only batch that is sent once its linger time is over."""
    producing.send(value)
    assert producing.take() == []
    producing.now_ms += 100
    ((outgoing,),) = producing.take()
    return outgoing


def test_without_sequences_the_parts_of_a_batch_are_sent_in_order() -> None:
    producing = Producing(replace(RULES, is_idempotent=False), batch_bytes=1_000)
    for number in range(3):
        producing.send(b"%d" % number)
    whole = sent_now(producing, b"3")
    producing.sending.content_of(whole)
    assert producing.classify(whole, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    producing.sending.split(whole, halves(whole.batch))
    values: list[bytes | None] = []
    for _ in range(2):
        ((part,),) = producing.take()
        content = RecordBatch(bytes(producing.sending.content_of(part)))
        values += [record.value for record in content.records()]
        assert producing.classify(part, ErrorCode.NONE) is Verdict.DONE
    assert values == [b"0", b"1", b"2", b"3"]


def test_without_sequences_a_batch_that_fails_or_expires_leaves_no_gap() -> None:
    rules = replace(RULES, is_idempotent=False)
    producing = Producing(rules)
    first = sent_now(producing, b"a")
    assert producing.classify(first, ErrorCode.INVALID_RECORD) is Verdict.FAILED
    second = sent_now(producing, b"b")
    producing.now_ms += rules.delivery_timeout_ms
    assert producing.sending.expire(producing.now_ms) == [second]
    assert producing.classify(second, ErrorCode.NOT_LEADER_OR_FOLLOWER) is Verdict.IGNORED
    third = sent_now(producing, b"c")
    assert producing.classify(third, ErrorCode.NOT_LEADER_OR_FOLLOWER) is Verdict.RETRY
    producing.now_ms += rules.delivery_timeout_ms
    assert producing.sending.expire(producing.now_ms) == [third]
    fourth = sent_now(producing, b"d")
    assert producing.classify(fourth, ErrorCode.NONE) is Verdict.DONE
