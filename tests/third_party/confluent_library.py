"""confluent-kafka, which is librdkafka."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as ConfluentPartition
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

TIMEOUT_MS = int(CLIENT_TIMEOUT_S * 1000)


class ConfluentLibrary:
    name = "confluent-kafka"
    assignors: tuple[str, ...] = ("range", "roundrobin", "cooperative-sticky")
    sends_every_null = True
    names_members = True
    refusal: type[Exception] = KafkaException

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], options: ProducerOptions
    ) -> list[int | None]:
        producer = Producer(
            {
                "bootstrap.servers": address,
                "compression.type": options.codec,
                "acks": options.acks,
                "enable.idempotence": options.is_idempotent,
                "message.max.bytes": options.request_bytes_max,
                "message.timeout.ms": TIMEOUT_MS,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        placed: list[int | None] = [None] * len(records)
        problems: list[Any] = []

        def report(index: int, error: Any, message: Any) -> None:
            if error is not None:
                problems.append(error)
            elif options.acks != "0":
                placed[index] = message.offset()

        for index, record in enumerate(records):
            arguments: dict[str, Any] = {"key": record.key, "value": record.value}
            if record.headers:
                arguments["headers"] = list(record.headers)
            if record.partition is not None:
                arguments["partition"] = record.partition
            if record.timestamp is not None:
                arguments["timestamp"] = record.timestamp
            producer.produce(topic, on_delivery=partial(report, index), **arguments)
        assert producer.flush(CLIENT_TIMEOUT_S) == 0, "not everything was answered"
        if problems:
            raise KafkaException(problems[0])
        return placed

    def consumer(self, address: str, options: ConsumerOptions) -> "ConfluentConsumer":
        return ConfluentConsumer(address, options)

    def transactions(
        self, address: str, transactional_id: str, timeout_ms: int = TRANSACTION_MS
    ) -> "ConfluentTransactions":
        return ConfluentTransactions(address, transactional_id, timeout_ms)

    def says_fenced(self, error: Exception) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() == KafkaError._FENCED


class ConfluentTransactions:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        self._refusals: list[Any] = []
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(CLIENT_TIMEOUT_S)

    def begin(self) -> None:
        self._refusals.clear()
        self._producer.begin_transaction()

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=partition, on_delivery=self._report)

    def _report(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._refusals.append(error)

    def flush(self) -> None:
        try:
            unreported = self._producer.flush(CLIENT_TIMEOUT_S)
        except SystemError as error:
            # A fatal error is raised while deliveries are reported. Python prints it, chains it to
            # this error, or loses it: then only the reports have it.
            if error.__cause__ is not None:
                raise error.__cause__ from None
            unreported = self._producer.flush(CLIENT_TIMEOUT_S)
        assert unreported == 0, "not everything was answered"
        refusals, self._refusals = self._refusals, []
        if refusals:
            raise KafkaException(refusals[0])

    def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: Any) -> None:
        wanted = [ConfluentPartition(*name, offset) for name, offset in offsets.items()]
        self._producer.send_offsets_to_transaction(wanted, membership, CLIENT_TIMEOUT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(CLIENT_TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(CLIENT_TIMEOUT_S)

    def close(self) -> None:
        """Drops unsent records: the library has no other way to close."""
        self._producer.purge()


class ConfluentConsumer:
    def __init__(self, address: str, options: ConsumerOptions) -> None:
        self.revoked: list[set[TopicPartition]] = []
        settings: dict[str, Any] = {
            "bootstrap.servers": address,
            # librdkafka requires a group name even if no group is joined.
            "group.id": options.group or "no-group",
            "partition.assignment.strategy": options.assignor,
            "isolation.level": (
                "read_committed" if options.reads_committed_only else "read_uncommitted"
            ),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "session.timeout.ms": options.session_ms,
            "fetch.wait.max.ms": 50,
            "check.crcs": True,
            "log_level": 0,
        }
        if options.instance_id is not None:
            settings["group.instance.id"] = options.instance_id
        self._consumer = Consumer(settings)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics), on_revoke=self._on_revoke)

    def _on_revoke(self, _consumer: Any, partitions: list[Any]) -> None:
        self.revoked.append({TopicPartition(p.topic, p.partition) for p in partitions})

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.assign([ConfluentPartition(*each, OFFSET_BEGINNING) for each in partitions])

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(each.topic, each.partition) for each in self._consumer.assignment()}

    def poll(self) -> list[Received]:
        received = []
        for message in self._consumer.consume(500, 0.05):
            error = message.error()
            if error is None:
                received.append(_received(message))
            elif not error.retriable():
                raise KafkaException(error)
        return received

    def seek(self, partition: TopicPartition, offset: int) -> None:
        # A seek is refused until the fetcher of a new assignment runs.
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        while True:
            try:
                return self._consumer.seek(ConfluentPartition(*partition, offset))
            except KafkaException:
                assert time.monotonic() < deadline
                self._consumer.poll(0.05)

    def position(self, partition: TopicPartition) -> int:
        (found,) = self._consumer.position([ConfluentPartition(*partition)])
        return int(found.offset)

    def pause(self, partition: TopicPartition) -> None:
        self._consumer.pause([ConfluentPartition(*partition)])

    def resume(self, partition: TopicPartition) -> None:
        self._consumer.resume([ConfluentPartition(*partition)])

    def commit(self, offsets: Mapping[TopicPartition, Committed] | None = None) -> None:
        if offsets is None:
            self._consumer.commit(asynchronous=False)
            return
        wanted = [
            ConfluentPartition(*name, one.offset, metadata=one.metadata or "")
            for name, one in offsets.items()
        ]
        for answer in self._consumer.commit(offsets=wanted, asynchronous=False):
            if answer.error is not None:
                raise KafkaException(answer.error)

    def membership(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def committed(self, partition: TopicPartition) -> int | None:
        (found,) = self._consumer.committed([ConfluentPartition(*partition)], CLIENT_TIMEOUT_S)
        return None if found.offset == OFFSET_INVALID else int(found.offset)

    def beginning_offset(self, partition: TopicPartition) -> int:
        return int(self._watermarks(partition)[0])

    def end_offset(self, partition: TopicPartition) -> int:
        return int(self._watermarks(partition)[1])

    def _watermarks(self, partition: TopicPartition) -> Any:
        return self._consumer.get_watermark_offsets(
            ConfluentPartition(*partition), CLIENT_TIMEOUT_S
        )

    def offset_for_time(self, partition: TopicPartition, timestamp: int) -> int | None:
        query = [ConfluentPartition(*partition, timestamp)]
        (found,) = self._consumer.offsets_for_times(query, CLIENT_TIMEOUT_S)
        return None if found.offset == OFFSET_END else int(found.offset)

    def close(self) -> None:
        self._consumer.close()


def _received(message: Any) -> Received:
    return Received(
        TopicPartition(message.topic(), message.partition()),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple((name, value) for name, value in message.headers() or ()),
    )
