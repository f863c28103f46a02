"""A running node whose settings are observed from outside: over its sockets, in its files, and by
advancing its clock.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.waiting import pause, wait_for
from support.wire_client import WireClient
from system.node.questions import EARLIEST, LATEST, PRODUCE_VERSION, offset_at

from moldau.net.clock import Clock
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch, iterate_batches
from moldau.testing import ThreadBroker, broker

FETCH_VERSION = 12
CHECKS_BEFORE_NO = 4
STEPS_MAX = 200


class LiveNode:
    def __init__(self, started: ThreadBroker, client: WireClient) -> None:
        self.broker = started
        self.client = client
        self._ahead_ms = 0

    @property
    def ports(self) -> Mapping[str, int]:
        """The node's ports by listener name."""
        return self.broker._running().ports

    # Settings

    def change(self, name: str, value: str | None, *, topic: str = "", node: str = "") -> None:
        """Changes a setting of a topic, of one node or (without either) of all nodes. None restores
        the default.
        """
        kind = ConfigResourceType.TOPIC if topic else ConfigResourceType.BROKER
        wanted = AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
        resource = AlterConfigsResource(
            resource_type=kind, resource_name=topic or node, configs=[wanted]
        )
        (answer,) = self.client.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
        assert answer.error_code == 0, answer.error_message

    def create_topic(
        self, name: str, configs: Mapping[str, str] | None = None, partitions: int = 1
    ) -> str:
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
        )
        (made,) = self.client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)).topics
        assert made.error_code == 0, made.error_message
        return name

    # Time

    @property
    def now_ms(self) -> int:
        return Clock().wall_ms() + self._ahead_ms

    def advance(self, ms: float) -> None:
        self._ahead_ms += int(ms)
        self.broker.clock.advance(ms=int(ms))

    def assert_happens_after(self, ms: int, condition: Callable[[], bool]) -> None:
        """The condition becomes true after `ms`, not much earlier and not much later."""
        for _ in range(3):
            self.advance(ms * 0.2)
            self.assert_stays_false(condition)
        self.advance(ms * 0.4)
        for _ in range(STEPS_MAX):
            if condition():
                return
            self.advance(ms * 0.05 + 100)
            pause()
        raise AssertionError(f"it did not happen long after {ms} ms")

    def assert_stays_false(self, condition: Callable[[], bool]) -> None:
        """The condition stays false while the node does other work, which includes disk writes."""
        for number in range(CHECKS_BEFORE_NO):
            assert not condition()
            self.change("segment.jitter.ms", str(number + 1), topic="watched")
        assert not condition()

    def advance_until(self, condition: Callable[[], bool], step_ms: int = 16_000) -> None:
        """Advances the clock until the condition is true, so that background work becomes due."""

        def after_a_step() -> bool:
            self.advance(step_ms)
            return condition()

        wait_for(after_a_step, "the effect of a setting")

    # Records

    def write(
        self,
        topic: str,
        *values: bytes | None,
        key: bytes | None = None,
        after_ms: int = 0,
        partition: int = 0,
        acks: int = -1,
    ) -> int:
        """Writes records with the node's time, or `after_ms` later. Returns the error code."""
        time_ms = self.now_ms + after_ms
        records = [Record(i, time_ms, key, value) for i, value in enumerate(values)]
        return self.write_batch(
            topic, build_batch(records, BatchOptions(base_offset=0)), partition, acks
        )

    def write_batch(self, topic: str, batch: bytes, partition: int = 0, acks: int = -1) -> int:
        content = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[content])],
        )
        (answer,) = self.client.ask(request, PRODUCE_VERSION).responses[0].partition_responses
        return int(answer.error_code)

    def batches(self, topic: str) -> list[RecordBatch]:
        """All batches of the first partition."""
        batches: list[RecordBatch] = []
        offset = offset_at(self.client, (topic, 0), EARLIEST)
        end = offset_at(self.client, (topic, 0), LATEST)
        while offset < end:
            found = list(iterate_batches(self.fetch(topic, offset)))
            if not found:
                break
            batches += found
            offset = found[-1].next_offset
        return batches

    def fetch(self, topic: str, offset: int, max_bytes: int = 64 << 20) -> bytes:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        (answer,) = self.client.ask(request, FETCH_VERSION).responses[0].partitions
        assert answer.error_code == 0
        return bytes(answer.records or b"")

    def values(self, topic: str, key: bytes) -> list[bytes | None]:
        return [
            None if record.value is None else bytes(record.value)
            for batch in self.batches(topic)
            for record in batch.records()
            if record.key == key
        ]

    # Files

    def files(self, pattern: str, partition: str) -> list[Path]:
        """The matching files of a partition, sorted."""
        return sorted((self.broker.directory / partition).glob(pattern))

    def segments(self, topic: str, partition: int = 0) -> int:
        return len(self.files("*.log", f"{topic}-{partition}"))

    def checkpoint(self, name: str, topic: str) -> int:
        """The offset that a checkpoint file has for the first partition; -1 if it has none."""
        path = self.broker.directory / name
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [line.split() for line in lines[2:]]
        return next((int(row[2]) for row in rows if row[:2] == [topic, "0"]), -1)


@contextmanager
def live_node(settings: Mapping[str, str]) -> Iterator[LiveNode]:
    with broker({"connections.max.idle.ms": "-1"} | dict(settings)) as started:
        assert isinstance(started, ThreadBroker)
        started.create_topic("watched")
        with WireClient(started.bootstrap) as client:
            yield LiveNode(started, client)
