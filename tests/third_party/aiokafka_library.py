"""aiokafka, driven from a thread: its event loop runs while a call waits."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata
from third_party.libraries import (
    CLIENT_TIMEOUT_S,
    HEARTBEAT_MS,
    TRANSACTION_MS,
    Committed,
    ConsumerOptions,
    ProducerOptions,
    Received,
    Sent,
)

from moldau.types import TopicPartition

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
Answer = TypeVar("Answer")


def run_bounded(runner: asyncio.Runner, work: Coroutine[Any, Any, Answer]) -> Answer:
    async def bounded() -> Answer:
        async with asyncio.timeout(CLIENT_TIMEOUT_S):
            return await work

    return runner.run(bounded())


class AiokafkaLibrary:
    name = "aiokafka"
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    sends_every_null = False
    names_members = False
    refusal: type[Exception] = KafkaError

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], options: ProducerOptions
    ) -> list[int | None]:
        return asyncio.run(_produce(address, topic, records, options))

    def consumer(self, address: str, options: ConsumerOptions) -> "AiokafkaConsumer":
        return AiokafkaConsumer(address, options)

    def transactions(
        self, address: str, transactional_id: str, timeout_ms: int = TRANSACTION_MS
    ) -> "AiokafkaTransactions":
        return AiokafkaTransactions(address, transactional_id, timeout_ms)

    def says_fenced(self, error: Exception) -> bool:
        return isinstance(error, ProducerFenced | InvalidProducerEpoch)


async def _produce(
    address: str, topic: str, records: Sequence[Sent], options: ProducerOptions
) -> list[int | None]:
    producer = AIOKafkaProducer(
        bootstrap_servers=address,
        compression_type=None if options.codec == "none" else options.codec,
        acks=options.acks if options.acks == "all" else int(options.acks),
        enable_idempotence=options.is_idempotent,
        max_request_size=options.request_bytes_max,
        linger_ms=5,
    )
    await producer.start()
    try:
        answers = [
            await producer.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        async with asyncio.timeout(CLIENT_TIMEOUT_S):
            placed = await asyncio.gather(*answers)
    finally:
        await producer.stop()
    return [None if options.acks == "0" else one.offset for one in placed]


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, revoked: list[set[TopicPartition]]) -> None:
        self._revoked = revoked

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._revoked.append({TopicPartition(*each) for each in revoked})

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        pass


class AiokafkaTransactions:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        self._answers: list[Any] = []
        self._runner = asyncio.Runner()
        self._producer = self._run(self._open(address, transactional_id, timeout_ms))

    @staticmethod
    async def _open(address: str, transactional_id: str, timeout_ms: int) -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        return producer

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return run_bounded(self._runner, work)

    def begin(self) -> None:
        self._answers.clear()
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self._answers.append(self._run(self._producer.send(topic, value, partition=partition)))

    def flush(self) -> None:
        async def flush() -> None:
            answers, self._answers = self._answers, []
            await asyncio.gather(*answers)

        self._run(flush())

    def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: Any) -> None:
        wanted = {AiokafkaPartition(*name): offset for name, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(wanted, membership))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        finally:
            self._runner.close()


class AiokafkaConsumer:
    def __init__(self, address: str, options: ConsumerOptions) -> None:
        self.revoked: list[set[TopicPartition]] = []
        self._group = options.group
        self._runner = asyncio.Runner()
        self._consumer = self._run(self._open(address, options))

    @staticmethod
    async def _open(address: str, options: ConsumerOptions) -> Any:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=options.group,
            group_instance_id=options.instance_id,
            partition_assignment_strategy=(ASSIGNORS[options.assignor],),
            isolation_level=(
                "read_committed" if options.reads_committed_only else "read_uncommitted"
            ),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=options.session_ms,
            fetch_max_wait_ms=50,
        )
        try:
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return run_bounded(self._runner, work)

    def subscribe(self, topics: Sequence[str]) -> None:
        async def subscribe() -> None:
            self._consumer.subscribe(list(topics), listener=_Listener(self.revoked))

        self._run(subscribe())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        async def assign() -> None:
            self._consumer.assign([AiokafkaPartition(*each) for each in partitions])

        self._run(assign())

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(*each) for each in self._consumer.assignment()}

    def poll(self) -> list[Received]:
        polled = self._run(self._consumer.getmany(timeout_ms=50))
        return [_received(record) for records in polled.values() for record in records]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        async def seek() -> None:
            self._consumer.seek(AiokafkaPartition(*partition), offset)

        self._run(seek())

    def position(self, partition: TopicPartition) -> int:
        return int(self._run(self._consumer.position(AiokafkaPartition(*partition))))

    def pause(self, partition: TopicPartition) -> None:
        async def pause() -> None:
            self._consumer.pause(AiokafkaPartition(*partition))

        self._run(pause())

    def resume(self, partition: TopicPartition) -> None:
        async def resume() -> None:
            self._consumer.resume(AiokafkaPartition(*partition))

        self._run(resume())

    def commit(self, offsets: Mapping[TopicPartition, Committed] | None = None) -> None:
        if offsets is None:
            self._run(self._consumer.commit())
            return
        wanted = {
            AiokafkaPartition(*name): OffsetAndMetadata(one.offset, one.metadata or "")
            for name, one in offsets.items()
        }
        self._run(self._consumer.commit(wanted))

    def membership(self) -> Any:
        """Only the name of the group: this library exposes no more."""
        return self._group

    def committed(self, partition: TopicPartition) -> int | None:
        found = self._run(self._consumer.committed(AiokafkaPartition(*partition)))
        return None if found is None else int(found)

    def beginning_offset(self, partition: TopicPartition) -> int:
        name = AiokafkaPartition(*partition)
        return int(self._run(self._consumer.beginning_offsets([name]))[name])

    def end_offset(self, partition: TopicPartition) -> int:
        name = AiokafkaPartition(*partition)
        return int(self._run(self._consumer.end_offsets([name]))[name])

    def offset_for_time(self, partition: TopicPartition, timestamp: int) -> int | None:
        name = AiokafkaPartition(*partition)
        found = self._run(self._consumer.offsets_for_times({name: timestamp}))[name]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        try:
            self._run(self._consumer.stop())
        finally:
            self._runner.close()


def _received(record: Any) -> Received:
    return Received(
        TopicPartition(record.topic, record.partition),
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
    )
