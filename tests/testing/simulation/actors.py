"""Clients of a simulation that work until its story ends: an idempotent producer, a
transactional producer, and the member of a group. They keep their history.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from testing.simulation.history import (
    PLACES,
    BrokenPromiseError,
    History,
    Place,
    Transaction,
    committed_offset,
)
from testing.simulation.talking import PASSING, Client, only_code

from moldau.net.request_channel import ChannelError
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.types import ProducerEpoch

GROUP = "group"
TRANSACTIONS_GROUP = "transactions' group"
OFFSETS_AT: Place = PLACES[0]
TOPICS_MAX = 10
_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_FIND_VERSION = 6
_INIT_VERSION = 5
_ALL = -1


class Work:
    """When the clients stop."""

    def __init__(self) -> None:
        self.is_over = False


def batch_of(values: list[bytes], now_ms: int, options: BatchOptions) -> bytes:
    return build_batch([Record(n, now_ms, None, value) for n, value in enumerate(values)], options)


def produce_request(
    place: Place, content: bytes, transactional_id: str | None = None
) -> ProduceRequest:
    topic, index = place
    data = PartitionProduceData(index=index, records=content)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


async def find_coordinator(client: Client, key_type: int, key: str) -> None:
    """The first request creates the topic of the coordinators."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    await client.persist(request, _FIND_VERSION, lambda a: int(a.coordinators[0].error_code))


def _produce_code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


@dataclass
class _Batch:
    values: list[bytes]
    request: ProduceRequest


class IdempotentProducer:
    """Has several batches in flight, and sends them again in their order."""

    VERSION = 12

    def __init__(self, client: Client, history: History, chance: Random, name: str) -> None:
        self._client = client
        self._history = history
        self._chance = chance
        self._values = (f"{name} {number}".encode() for number in count())
        self._producer_id = -1
        self._sequences = dict.fromkeys(PLACES, 0)

    async def run(self, work: Work) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await self._client.persist(request, _INIT_VERSION, only_code)
        self._producer_id = answer.producer_id
        self._history.got_producer_id(answer.producer_id)
        while not work.is_over:
            place = self._chance.choice(PLACES)
            size = self._chance.randint(1, 4)
            if not self._sequences[place]:
                # As in Kafka, a partition takes any first sequence of a producer: it would take
                # the second batch after a full disk refused the first.
                size = 1
            batches = [self._next(place) for _ in range(size)]
            await self._deliver(place, batches)
            await self._client.clock.sleep(self._chance.choice([0, 1, 20, 200]))

    def _next(self, place: Place) -> _Batch:
        values = [next(self._values) for _ in range(self._chance.randint(1, 3))]
        options = BatchOptions(
            base_offset=0,
            producer_id=self._producer_id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=self._sequences[place],
        )
        self._sequences[place] += len(values)
        self._history.sending(place, values)
        content = batch_of(values, self._client.clock.wall_ms(), options)
        return _Batch(values, produce_request(place, content))

    async def _deliver(self, place: Place, batches: list[_Batch]) -> None:
        while batches:
            requests = [batch.request for batch in batches]
            answers = await self._client.ask_in_order(requests, self.VERSION)
            left: list[_Batch] = []
            for batch, answer in zip(batches, answers, strict=True):
                if isinstance(answer, ChannelError):
                    left.append(batch)
                    continue
                part = answer.responses[0].partition_responses[0]
                code = ErrorCode(part.error_code)
                if code is ErrorCode.NONE:
                    self._history.was_acknowledged(place, part.base_offset, batch.values)
                elif code in PASSING or (left and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
                    left.append(batch)
                else:
                    raise BrokenPromiseError(f"{place}: {batch.values} met {code.name}")
            batches = left
            if batches:
                await self._client.clock.sleep(50)


class TransactionalProducer:
    """One transaction after the other, with the requests of transaction version 1 or 2."""

    def __init__(
        self, client: Client, history: History, chance: Random, name: str, numbers: Iterator[int]
    ) -> None:
        self._client = client
        self._history = history
        self._chance = chance
        self._name = name
        self._numbers = numbers
        self._is_new = chance.random() < 0.5
        self._producer_id = self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self.counts = {"committed": 0, "aborted": 0, "failed": 0}

    async def run(self, work: Work) -> None:
        await find_coordinator(self._client, _TRANSACTION_KEY, self._name)
        await find_coordinator(self._client, _GROUP_KEY, TRANSACTIONS_GROUP)
        await self._init()
        while not work.is_over:
            transaction = Transaction(next(self._numbers))
            self._history.transactions.append(transaction)
            is_ending = False
            try:
                await self._write(transaction)
                transaction.commits = commits = self._chance.random() < 0.6
                is_ending = True
                await self._end(commits=commits)
                self.counts["committed" if commits else "aborted"] += 1
            except KafkaError:
                self.counts["failed"] += 1
                if not is_ending or not transaction.commits:
                    transaction.commits = False
                else:
                    transaction.commits = None
                await self._init()
            await self._client.clock.sleep(self._chance.choice([0, 1, 20, 200]))

    async def _init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        answer = await self._client.persist(request, _INIT_VERSION, only_code)
        self._continue_as(answer.producer_id, answer.producer_epoch)

    def _continue_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self._producer_id, self._epoch):
            self._sequences.clear()
        self._producer_id, self._epoch = producer_id, epoch

    async def _write(self, transaction: Transaction) -> None:
        places = self._chance.sample(PLACES[2:], self._chance.randint(1, 2))
        for place in places:
            if not self._is_new:
                await self._add(place)
            for batch in range(self._chance.randint(1, 2)):
                values = [f"{self._name} {transaction.number} {place} {batch}".encode()]
                await self._send(transaction, place, values)
        if self._chance.random() < 0.5:
            await self._send_offset(transaction)

    async def _add(self, place: Place) -> None:
        topic, index = place
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=ProducerEpoch(self._epoch),
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index])],
        )
        await self._client.persist(request, 3, _added_code)

    async def _send(self, transaction: Transaction, place: Place, values: list[bytes]) -> None:
        for value in values:
            transaction.values[value] = place
        self._history.sending(place, values)
        sequence = self._sequences.get(place, 0)
        options = BatchOptions(
            base_offset=0,
            producer_id=self._producer_id,
            producer_epoch=ProducerEpoch(self._epoch),
            base_sequence=sequence,
            is_transactional=True,
        )
        content = batch_of(values, self._client.clock.wall_ms(), options)
        request = produce_request(place, content, self._name)
        answer = await self._client.persist(request, 12 if self._is_new else 11, _produce_code)
        base_offset = answer.responses[0].partition_responses[0].base_offset
        self._sequences[place] = sequence + len(values)
        self._history.was_acknowledged(place, base_offset, values)

    async def _send_offset(self, transaction: Transaction) -> None:
        if not self._is_new:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self._name,
                producer_id=self._producer_id,
                producer_epoch=ProducerEpoch(self._epoch),
                group_id=TRANSACTIONS_GROUP,
            )
            await self._client.persist(adding, 3, only_code)
        topic, index = OFFSETS_AT
        transaction.offset = transaction.number
        part = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=transaction.number
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=TRANSACTIONS_GROUP,
            producer_id=self._producer_id,
            producer_epoch=ProducerEpoch(self._epoch),
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        await self._client.persist(request, 5 if self._is_new else 4, _offset_code)

    async def _end(self, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=ProducerEpoch(self._epoch),
            committed=commits,
        )
        answer = await self._client.persist(request, 5 if self._is_new else 4, only_code)
        if self._is_new:
            self._continue_as(answer.producer_id, answer.producer_epoch)


def _added_code(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _offset_code(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


class GroupMember:
    """The only member of its group. What it commits only rises."""

    def __init__(self, client: Client, history: History, chance: Random) -> None:
        self._client = client
        self._history = history
        self._chance = chance
        self._member_id = ""
        self._generation = -1
        self._offset = 0
        self.commits = 0

    async def run(self, work: Work) -> None:
        await find_coordinator(self._client, _GROUP_KEY, GROUP)
        while not work.is_over:
            try:
                await self._join()
                offset = await committed_offset(self._client, GROUP, OFFSETS_AT)
                self._history.check_group_offset(offset)
                while not work.is_over:
                    await self._commit()
                    await self._client.clock.sleep(self._chance.choice([1, 20, 200]))
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                elif error.code not in {
                    ErrorCode.ILLEGAL_GENERATION,
                    ErrorCode.REBALANCE_IN_PROGRESS,
                }:
                    raise BrokenPromiseError(f"the member met {error}") from error

    async def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=2_000,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
        )
        answer = await self._client.persist(request, 9, _join_code)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            answer = await self._client.persist(request, 9, only_code)
        self._member_id, self._generation = answer.member_id, answer.generation_id
        mine = SyncGroupRequestAssignment(member_id=self._member_id, assignment=b"all")
        sync = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[mine] if answer.leader == self._member_id else [],
        )
        await self._client.persist(sync, 5, only_code)

    async def _commit(self) -> None:
        self._offset += self._chance.randint(1, 5)
        self._history.attempted_offset = self._offset
        topic, index = OFFSETS_AT
        part = OffsetCommitRequestPartition(partition_index=index, committed_offset=self._offset)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        await self._client.persist(request, 9, _offset_code)
        self._history.committed_offset = self._offset
        self.commits += 1


class Admin:
    """Creates topics, and writes into them as soon as they are there."""

    def __init__(self, client: Client, history: History, chance: Random) -> None:
        self._client = client
        self._history = history
        self._chance = chance

    async def run(self, work: Work) -> None:
        for number in range(TOPICS_MAX):
            await self._client.clock.sleep(self._chance.choice([1, 50, 500]))
            if work.is_over:
                return
            place = f"topic-{number}", 0
            topic = CreatableTopic(name=place[0], num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
            await self._client.persist(request, 7, _created_code)
            self._history.acknowledged[place] = {}
            for _ in range(self._chance.randint(1, 2)):
                await self._write(place)

    async def _write(self, place: Place) -> None:
        """Not idempotent: a retry may append it twice, so that each attempt has its own value."""
        while True:
            value = f"{place[0]} {len(self._history.sent)}".encode()
            self._history.sending(place, [value])
            content = batch_of([value], self._client.clock.wall_ms(), BatchOptions(base_offset=0))
            try:
                answer = await self._client.ask(produce_request(place, content), 12)
            except ChannelError:
                continue
            part = answer.responses[0].partition_responses[0]
            if part.error_code == ErrorCode.NONE:
                self._history.was_acknowledged(place, part.base_offset, [value])
                return
            await self._client.clock.sleep(50)


def _created_code(answer: Any) -> int:
    code = ErrorCode(answer.topics[0].error_code)
    if code is ErrorCode.INVALID_REPLICATION_FACTOR:
        # The only broker is fenced for a moment.
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NONE if code is ErrorCode.TOPIC_ALREADY_EXISTS else code


Actor = IdempotentProducer | TransactionalProducer | GroupMember | Admin


def _join_code(answer: Any) -> int:
    return 0 if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else int(answer.error_code)
