"""kafka-python."""

import gc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata
from third_party.forgotten_sockets import let_kafka_python_forget_sockets
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
    "cooperative-sticky": CooperativeStickyAssignor,
}

let_kafka_python_forget_sockets()


def collect_what_was_left_open() -> None:
    """The library's close may forget sockets; many tests would leave hundreds."""
    gc.collect()


class KafkaPythonLibrary:
    name = "kafka-python"
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    sends_every_null = False
    names_members = True
    refusal: type[Exception] = KafkaError

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], options: ProducerOptions
    ) -> list[int | None]:
        producer = KafkaProducer(
            bootstrap_servers=address,
            compression_type=None if options.codec == "none" else options.codec,
            acks=options.acks if options.acks == "all" else int(options.acks),
            enable_idempotence=options.is_idempotent,
            max_request_size=options.request_bytes_max,
            linger_ms=5,
            metrics_enabled=False,
        )
        try:
            answers = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            placed = [answer.get(CLIENT_TIMEOUT_S).offset for answer in answers]
        finally:
            producer.close()
            del producer
            collect_what_was_left_open()
        return [None if options.acks == "0" else offset for offset in placed]

    def consumer(self, address: str, options: ConsumerOptions) -> "KafkaPythonConsumer":
        return KafkaPythonConsumer(address, options)

    def transactions(
        self, address: str, transactional_id: str, timeout_ms: int = TRANSACTION_MS
    ) -> "KafkaPythonTransactions":
        return KafkaPythonTransactions(address, transactional_id, timeout_ms)

    def says_fenced(self, error: Exception) -> bool:
        return isinstance(error, ProducerFencedError | InvalidProducerEpochError)


class KafkaPythonTransactions:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        self._answers: list[Any] = []
        self._producer = KafkaProducer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=CLIENT_TIMEOUT_S * 1000,
            metrics_enabled=False,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._answers.clear()
        self._producer.begin_transaction()

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self._answers.append(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        answers, self._answers = self._answers, []
        for answer in answers:
            answer.get(CLIENT_TIMEOUT_S)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: Any) -> None:
        wanted = {
            KafkaPythonPartition(*name): OffsetAndMetadata(offset, "", -1)
            for name, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(wanted, membership)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)
        del self._producer
        collect_what_was_left_open()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, revoked: list[set[TopicPartition]]) -> None:
        self._revoked = revoked

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._revoked.append({TopicPartition(*each) for each in revoked})

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        pass


class KafkaPythonConsumer:
    def __init__(self, address: str, options: ConsumerOptions) -> None:
        self.revoked: list[set[TopicPartition]] = []
        self._consumer = KafkaConsumer(
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
            # A poll that times out in the middle of a join starts a second one, and the group waits
            # this long for a member that does not exist.
            max_poll_interval_ms=options.session_ms,
            fetch_max_wait_ms=50,
            metrics_enabled=False,
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics), listener=_Listener(self.revoked))
        # A member that learns about its topics only after it joined rejoins; if a poll ends
        # meanwhile, this library forgets that and stops its heartbeats. So it learns about them
        # first.
        self._consumer.topics()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.assign([KafkaPythonPartition(*each) for each in partitions])

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(*each) for each in self._consumer.assignment()}

    def poll(self) -> list[Received]:
        polled = self._consumer.poll(timeout_ms=200)
        return [_received(record) for records in polled.values() for record in records]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(KafkaPythonPartition(*partition), offset)

    def position(self, partition: TopicPartition) -> int:
        return int(self._consumer.position(KafkaPythonPartition(*partition)))

    def pause(self, partition: TopicPartition) -> None:
        self._consumer.pause(KafkaPythonPartition(*partition))

    def resume(self, partition: TopicPartition) -> None:
        self._consumer.resume(KafkaPythonPartition(*partition))

    def commit(self, offsets: Mapping[TopicPartition, Committed] | None = None) -> None:
        if offsets is None:
            self._consumer.commit()
            return
        self._consumer.commit(
            {
                KafkaPythonPartition(*name): OffsetAndMetadata(one.offset, one.metadata or "", -1)
                for name, one in offsets.items()
            }
        )

    def membership(self) -> Any:
        return self._consumer.group_metadata()

    def committed(self, partition: TopicPartition) -> int | None:
        found = self._consumer.committed(KafkaPythonPartition(*partition))
        return None if found is None else int(found)

    def beginning_offset(self, partition: TopicPartition) -> int:
        name = KafkaPythonPartition(*partition)
        return int(self._consumer.beginning_offsets([name])[name])

    def end_offset(self, partition: TopicPartition) -> int:
        name = KafkaPythonPartition(*partition)
        return int(self._consumer.end_offsets([name])[name])

    def offset_for_time(self, partition: TopicPartition, timestamp: int) -> int | None:
        name = KafkaPythonPartition(*partition)
        found = self._consumer.offsets_for_times({name: timestamp})[name]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        self._consumer.close(autocommit=False)
        del self._consumer
        collect_what_was_left_open()


def _received(record: Any) -> Received:
    return Received(
        TopicPartition(record.topic, record.partition),
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
    )
