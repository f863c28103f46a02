"""Transactions that a coordinator must refuse, and batches that belong to none.

The ids are the rows of the project's list of bad inputs, groups E and I.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from support.producer_talk import wait_for_coordinator
from support.running_node import KafkaUnderTest, fresh_name
from support.waiting import pause, wait_for
from support.wire_client import WireClient, create_topic

from moldau.net.clock import Clock
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.schema import Message
from moldau.types import ProducerEpoch

NONE, UNKNOWN_PARTITION, INVALID_TOPIC, INVALID_REQUEST = 0, 3, 17, 42
OUT_OF_ORDER, INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, INVALID_TIMEOUT = 45, 47, 48, 49, 50
NO_TXN_ID, NOT_ATTEMPTED, FENCED, ABORTABLE = 53, 55, 90, 120
PASSING = {14, 15, 16, 19, 51}
"""Errors that mean "wait": the coordinator loads, or the last transaction is about to end."""
READ_COMMITTED, LATEST = 1, -1
ASKED_AGAIN_MAX = 500
OLD, ABORTABLE_KNOWN, ADDING = 9, 11, 12


class Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int


def ask(client: WireClient, request: Message, version: int) -> Any:
    """Sends a request as clients do: again while there is something to wait for."""
    for _ in range(ASKED_AGAIN_MAX):
        answer = client.ask(request, version)
        if not set(all_codes(answer)) & PASSING:
            return answer
        pause()
    raise AssertionError(f"endless retries: {request}")


def all_codes(answer: Any) -> Iterator[int]:
    if hasattr(answer, "responses"):
        for topic in answer.responses:
            yield from (each.error_code for each in topic.partition_responses)
    elif hasattr(answer, "results_by_topic_v3_and_below"):
        results = [*answer.results_by_topic_v3_and_below]
        for transaction in answer.results_by_transaction:
            results += transaction.topic_results
        for topic in results:
            yield from (each.partition_error_code for each in topic.results_by_partition)
    else:
        yield answer.error_code


def begin(client: WireClient, transactional_id: str | None = None) -> Producer:
    name = transactional_id or fresh_name("bad-transactions")
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    answer = ask(client, request, 4)
    assert answer.error_code == NONE
    return Producer(name, answer.producer_id, answer.producer_epoch)


def add(client: WireClient, by: Producer, topic: str, *indexes: int, version: int = 3) -> list[int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=by.transactional_id,
        v3_and_below_producer_id=by.producer_id,
        v3_and_below_producer_epoch=by.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
    )
    return list(all_codes(ask(client, request, version)))


def end(client: WireClient, by: Producer, *, commit: bool = True, version: int = 4) -> int:
    request = EndTxnRequest(
        transactional_id=by.transactional_id,
        producer_id=by.producer_id,
        producer_epoch=by.epoch,
        committed=commit,
    )
    return int(ask(client, request, version).error_code)


def content(by: Producer, sequence: int, *, transactional: bool = True) -> bytes:
    record = Record(offset=0, timestamp=Clock().wall_ms(), key=b"k", value=b"v")
    options = BatchOptions(
        producer_id=by.producer_id,
        producer_epoch=ProducerEpoch(by.epoch),
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return build_batch([record], options)


def producing(transactional_id: str | None, topic: str, *batches: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=i, records=each) for i, each in enumerate(batches)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


def write(
    client: WireClient, by: Producer, topic: str, sequence: int = 0, version: int = ADDING
) -> int:
    request = producing(by.transactional_id, topic, content(by, sequence))
    (code,) = all_codes(ask(client, request, version))
    return code


def stable_offset(client: WireClient, topic: str, index: int = 0) -> tuple[int, int]:
    """The log ends for read_committed readers, and for all."""
    found = []
    for isolation in (READ_COMMITTED, 0):
        wanted = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        found.append(client.ask(request, 7).topics[0].partitions[0].offset)
    return found[0], found[1]


@pytest.fixture(autouse=True, scope="module")
def _coordinated(victim: KafkaUnderTest) -> None:
    wait_for_coordinator(victim.address)


@pytest.fixture
def topic(victim: KafkaUnderTest) -> str:
    name = fresh_name("bad-transactions")
    create_topic(victim.address, name, partitions=3)
    with WireClient(victim.address) as asking:
        # Leaders are announced before they lead.
        wait_for(
            lambda: all(stable_offset(asking, name, index) == (0, 0) for index in range(3)),
            "leaders",
        )
    return name


# Batches


def test_bi_065_one_batch_without_its_id_refuses_the_request(
    client: WireClient, topic: str
) -> None:
    producer = begin(client)
    plain = content(producer, 0, transactional=False)
    request = producing(None, topic, plain, content(producer, 0))
    assert list(all_codes(client.ask(request, ADDING))) == [NO_TXN_ID] * 2
    assert stable_offset(client, topic) == (0, 0)


@pytest.mark.parametrize(
    ("version", "code"), [(3, INVALID_STATE), (OLD, INVALID_STATE), (ABORTABLE_KNOWN, ABORTABLE)]
)
def test_bi_102_a_batch_unknown_to_the_coordinator_is_not_appended(
    client: WireClient, topic: str, version: int, code: int
) -> None:
    producer = begin(client)
    assert write(client, producer, topic, version=version) == code
    assert stable_offset(client, topic) == (0, 0)


@pytest.mark.parametrize("version", [OLD, ABORTABLE_KNOWN, ADDING])
def test_bi_102_invented_producers_and_ids_write_nothing(
    client: WireClient, topic: str, version: int
) -> None:
    known = begin(client)
    for stranger in (
        Producer(fresh_name("unnamed"), 4_000_000, 0),
        Producer(known.transactional_id, known.producer_id + 1_000_000, 0),
        Producer(fresh_name("unnamed"), known.producer_id, 0),
    ):
        assert write(client, stranger, topic, version=version) == INVALID_MAPPING
    ahead = Producer(known.transactional_id, known.producer_id, 7)
    assert write(client, ahead, topic, version=version) == INVALID_EPOCH
    assert stable_offset(client, topic) == (0, 0)


def test_bi_102_two_producers_in_one_request_refuse_it(client: WireClient, topic: str) -> None:
    one, two = begin(client), begin(client)
    request = producing(one.transactional_id, topic, content(one, 0), content(two, 0))
    assert list(all_codes(client.ask(request, ADDING))) == [INVALID_MAPPING] * 2
    assert stable_offset(client, topic) == (0, 0)


def test_bi_100_sequences_count_inside_a_transaction_too(client: WireClient, topic: str) -> None:
    producer = begin(client)
    assert [write(client, producer, topic, n) for n in (0, 1, 1, 0)] == [NONE] * 4
    assert write(client, producer, topic, 3) == OUT_OF_ORDER
    assert stable_offset(client, topic) == (0, 2)
    assert end(client, producer) == NONE


def test_bi_101_the_past_is_fenced(client: WireClient, topic: str) -> None:
    old = begin(client)
    assert write(client, old, topic) == NONE
    begin(client, old.transactional_id)
    assert write(client, old, topic, 1) == INVALID_EPOCH
    assert stable_offset(client, topic) == (2, 2), "the first one's transaction is aborted"


def test_bi_103_no_plain_batch_inside_a_transaction(client: WireClient, topic: str) -> None:
    producer = begin(client)
    assert write(client, producer, topic) == NONE
    for transactional_id in (producer.transactional_id, None):
        plain = producing(transactional_id, topic, content(producer, 1, transactional=False))
        assert list(all_codes(client.ask(plain, ADDING))) == [INVALID_STATE]
    assert end(client, producer, commit=False) == NONE


def test_bi_104_invented_producer_ids_take_no_room(client: WireClient, topic: str) -> None:
    producer = begin(client)
    for number in range(3000):
        invented = Producer(producer.transactional_id, 5_000_000 + number, 0)
        request = producing(producer.transactional_id, topic, content(invented, 0))
        (code,) = all_codes(client.ask(request, OLD))
        assert code == INVALID_MAPPING
    requested = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    (partition,) = client.ask(requested, 0).topics[0].partitions
    assert partition.active_producers == []


# Coordination


BAD_INITS = {
    "BI-140 empty": (INVALID_REQUEST, {"transactional_id": ""}),
    "BI-141 timeout 0": (INVALID_TIMEOUT, {"transaction_timeout_ms": 0}),
    "BI-141 timeout -1": (INVALID_TIMEOUT, {"transaction_timeout_ms": -1}),
    "BI-141 over 15 minutes": (INVALID_TIMEOUT, {"transaction_timeout_ms": 900_001}),
    "BI-141 for ever": (INVALID_TIMEOUT, {"transaction_timeout_ms": 2**31 - 1}),
    "BI-142 only an id": (INVALID_REQUEST, {"producer_id": 5}),
    "BI-142 only an epoch": (INVALID_REQUEST, {"producer_epoch": 5}),
}


@pytest.mark.parametrize(("code", "fields"), BAD_INITS.values(), ids=list(BAD_INITS))
def test_a_bad_beginning_is_refused(client: WireClient, code: int, fields: dict[str, Any]) -> None:
    good: dict[str, Any] = {"transactional_id": fresh_name("bad"), "transaction_timeout_ms": 1000}
    request = InitProducerIdRequest(**(good | fields))
    assert ask(client, request, 4).error_code == code


def test_bi_140_nothing_goes_without_a_transactional_id(client: WireClient, topic: str) -> None:
    unnamed = Producer("", 1, 0)
    assert add(client, unnamed, topic, 0) == [INVALID_REQUEST]
    assert end(client, unnamed) == INVALID_REQUEST
    offsets = AddOffsetsToTxnRequest(transactional_id="", producer_id=1, group_id="g")
    assert ask(client, offsets, 3).error_code == INVALID_REQUEST


@pytest.mark.parametrize("version", [1, 4])
def test_bi_143_ends_that_are_not_the_producers_own(
    client: WireClient, topic: str, version: int
) -> None:
    producer = begin(client)
    fenced = INVALID_EPOCH if version < 2 else FENCED
    assert end(client, producer, version=version) == INVALID_STATE
    assert add(client, producer, topic, 0) == [NONE]
    for wrong, code in (
        (producer._replace(transactional_id=fresh_name("unnamed")), INVALID_MAPPING),
        (producer._replace(producer_id=producer.producer_id + 1), INVALID_MAPPING),
        (producer._replace(epoch=producer.epoch - 1), fenced),
        (producer._replace(epoch=producer.epoch + 1), fenced),
    ):
        assert end(client, wrong, version=version) == code
        assert add(client, wrong, topic, 0, version=1 if version < 2 else 3) == [code]
    assert end(client, producer, version=version) == NONE


def test_bi_144_the_second_producer_fences_the_first(client: WireClient, topic: str) -> None:
    first = begin(client)
    assert add(client, first, topic, 0) == [NONE]
    second = begin(client, first.transactional_id)
    assert second.epoch > first.epoch
    assert add(client, first, topic, 0) == [FENCED]
    assert end(client, first) == FENCED
    assert end(client, first, version=1) == INVALID_EPOCH
    request = InitProducerIdRequest(
        transactional_id=first.transactional_id,
        transaction_timeout_ms=1000,
        producer_id=first.producer_id,
        producer_epoch=first.epoch,
    )
    assert ask(client, request, 4).error_code == FENCED
    assert write(client, second, topic) == NONE
    assert end(client, second) == NONE


def test_bi_145_an_end_that_comes_late_does_not_end_the_next_transaction(
    client: WireClient, topic: str
) -> None:
    producer = begin(client)
    assert write(client, producer, topic) == NONE
    assert end(client, producer, version=5) == NONE
    later = producer._replace(epoch=producer.epoch + 1)
    assert write(client, later, topic) == NONE
    assert end(client, producer, commit=False, version=5) == FENCED
    assert stable_offset(client, topic) == (2, 3), "it is still open"
    assert end(client, later, version=5) == NONE


def test_bi_147_overlapping_calls_get_a_retriable_error(
    client: WireClient, victim: KafkaUnderTest, topic: str
) -> None:
    producer = begin(client)
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    assert add(client, producer, topic, 0, 1, 2) == [NONE] * 3
    others = [WireClient(victim.address) for _ in range(8)]
    try:
        for other in others:
            other.send(request, 4)
        answers = [other.receive_frame() for other in others]
        assert len(answers) == len(others)
        assert end(client, producer) == NONE
        assert end(client, producer, commit=False) == INVALID_STATE
    finally:
        for other in others:
            other.close()


def test_partitions_that_are_not_there_keep_the_others_out(client: WireClient, topic: str) -> None:
    producer = begin(client)
    assert add(client, producer, topic, 0, 99) == [NOT_ATTEMPTED, UNKNOWN_PARTITION]
    assert add(client, producer, topic, -1) == [UNKNOWN_PARTITION]
    assert add(client, producer, fresh_name("absent"), 0) == [UNKNOWN_PARTITION]
    assert add(client, producer, "a/b", 0) == [UNKNOWN_PARTITION]
    many = range(20_000)
    assert set(add(client, producer, topic, *many)) == {NOT_ATTEMPTED, UNKNOWN_PARTITION}
    assert end(client, producer) == INVALID_STATE, "nothing was added"


def test_a_question_of_brokers_answers_each_transaction_once(
    client: WireClient, topic: str
) -> None:
    producer = begin(client)
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0, 0, 1])]
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=producer_id, verify_only=True, topics=topics
        )
        for name, producer_id in (
            (producer.transactional_id, producer.producer_id),
            (fresh_name("unnamed"), 1),
        )
    ]
    answer = client.ask(AddPartitionsToTxnRequest(transactions=transactions), 5)
    assert answer.error_code == NONE
    assert {ABORTABLE, INVALID_MAPPING} == set(all_codes(answer))


def test_producers_of_partitions_that_are_not_there(client: WireClient, topic: str) -> None:
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name=topic, partition_indexes=[0, 77, -1]),
            TopicRequest(name=fresh_name("absent"), partition_indexes=[0]),
            TopicRequest(name="a/b", partition_indexes=[0]),
        ]
    )
    answers = client.ask(request, 0).topics
    found = [[each.error_code for each in answer.partitions] for answer in answers]
    assert found == [
        [NONE, UNKNOWN_PARTITION, UNKNOWN_PARTITION],
        [UNKNOWN_PARTITION],
        [INVALID_TOPIC],
    ]
