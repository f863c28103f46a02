"""Logs for tests: one partition in a fresh directory, on any file system."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from moldau.config.log import LogConfig
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, iterate_batches
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.storage.directory.directory import LogDirectory, format_directory
from moldau.storage.directory.meta_properties import MetaProperties
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem
from moldau.storage.log.flushing import GroupFlusher
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.read import Isolation
from moldau.storage.log.recovery import Checkpointed, LogLocation, open_log
from moldau.storage.producers.snapshots import encode_snapshot
from moldau.storage.producers.state import AppendOrigin
from moldau.storage.segment.segment import Segment
from moldau.types import BrokerId, LeaderEpoch, Offset, ProducerEpoch, TopicPartition, Uuid

PARTITION = TopicPartition("orders", 0)
CLUSTER = "cluster-of-the-tests"
NODE = BrokerId(1)
META = MetaProperties(cluster_id=CLUSTER, node_id=NODE, directory_id=Uuid(bytes(range(16))))

# Logs that the running test opened; the fixture in conftest.py closes them.
_opened: list[Callable[[], None]] = []

SMALL_SEGMENTS = LogConfig(internal_segment_bytes=4096, index_interval_bytes=256)


def close_after_the_test(close: Callable[[], None]) -> None:
    _opened.append(close)


def close_everything() -> None:
    while _opened:
        _opened.pop()()


def open_directory(path: Path, filesystem: FileSystem | None = None) -> LogDirectory:
    disk = filesystem or DiskFileSystem()
    format_directory(disk, path, META)
    directory = LogDirectory.open(disk, path, cluster_id=CLUSTER, node_id=NODE)
    close_after_the_test(directory.close)
    return directory


def records_batch(
    values: list[bytes],
    options: BatchOptions = BatchOptions(),  # noqa: B008 - frozen
    *,
    timestamp_ms: int = 1_000,
) -> bytes:
    base = options.base_offset or 0
    return build_batch(
        [Record(base + i, timestamp_ms + i, b"key", value) for i, value in enumerate(values)],
        options,
    )


def marker_batch(
    producer_id: int, producer_epoch: int, *, abort: bool, now_ms: int = 5_000
) -> bytes:
    kind = ControlType.ABORT if abort else ControlType.COMMIT
    return end_transaction_marker(
        EndTransactionMarker(control_type=kind, coordinator_epoch=0),
        MarkerOrigin(producer_id=producer_id, producer_epoch=ProducerEpoch(producer_epoch)),
        now_ms,
    )


@dataclass
class OneLog:
    """A partition's log that can be closed, crashed and opened again."""

    path: Path
    config: LogConfig = field(default_factory=LogConfig)
    filesystem: FileSystem = field(default_factory=DiskFileSystem)
    flush_policy: str = "os"
    flusher: GroupFlusher | None = None
    epoch: int = 0

    def __post_init__(self) -> None:
        self.directory = open_directory(self.path, self.filesystem)
        self.log = self.open()

    def open(
        self,
        checkpointed: Checkpointed = Checkpointed(),  # noqa: B008 - frozen
        *,
        is_clean: bool = False,
        now_ms: int = 0,
    ) -> Log:
        place = LogLocation(
            directory=self.directory,
            path=self.directory.path_of(PARTITION),
            topic_partition=PARTITION,
        )
        options = LogOptions(
            config=self.config, flush_policy=self.flush_policy, flusher=self.flusher
        )
        self.log = open_log(place, options, checkpointed, is_clean=is_clean, now_ms=now_ms)
        close_after_the_test(self.log.abandon)
        return self.log

    def reopen(
        self,
        *,
        is_clean: bool,
        recovery_point: int = 0,
        high_watermark: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        """Clean: after `close`. Otherwise as after SIGKILL: written bytes are kept."""
        if is_clean:
            self.log.close()
        else:
            self.log.abandon()
        return self.open(
            Checkpointed(
                recovery_point=recovery_point,
                high_watermark=Offset(high_watermark),
                log_start_offset=Offset(log_start_offset),
            ),
            is_clean=is_clean,
        )

    def append(self, *values: bytes, epoch: int | None = None, timestamp_ms: int = 1_000) -> int:
        """Appends one batch and returns its first offset. An epoch applies until another
        is passed.
        """
        self.epoch = self.epoch if epoch is None else epoch
        batch = records_batch(list(values), timestamp_ms=timestamp_ms)
        return self.log.append_as_leader(batch, LeaderEpoch(self.epoch), 5_000).first_offset

    def append_transactional(
        self, producer_id: int, sequence: int, *values: bytes, producer_epoch: int = 0
    ) -> int:
        options = BatchOptions(
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(producer_epoch),
            base_sequence=sequence,
            is_transactional=True,
        )
        batch = records_batch(list(values), options)
        return self.log.append_as_leader(batch, LeaderEpoch(self.epoch), 5_000).first_offset

    def end_transaction(self, producer_id: int, *, abort: bool, producer_epoch: int = 0) -> int:
        marker = marker_batch(producer_id, producer_epoch, abort=abort)
        result = self.log.append_as_leader(
            marker,
            LeaderEpoch(self.epoch),
            5_000,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=0,
        )
        return result.first_offset

    def fill(self, batches: int, *, value: bytes = b"v" * 100) -> None:
        for number in range(batches):
            self.append(value + b"%d" % number, timestamp_ms=1_000 + number)

    def commit_all(self) -> None:
        self.log.raise_high_watermark(self.log.log_end_offset)

    def file(self, name: str) -> Path:
        return self.log.path / name

    def names(self) -> list[str]:
        return self.filesystem.list_directory(self.log.path)


def read_all(
    log: Log, isolation: Isolation = Isolation.LOG_END, step: int = 1 << 20
) -> list[Record]:
    return list(read_from(log, log.log_start_offset, isolation, step))


def read_from(log: Log, offset: int, isolation: Isolation, step: int = 1 << 20) -> Iterator[Record]:
    """Reads like a consumer: each read continues where the last one ended, up to the end."""
    while True:
        result = log.read(Offset(offset), step, isolation=isolation)
        if not len(result.records):
            return
        for batch in iterate_batches(result.records):
            for record in batch.records():
                if record.offset >= offset:
                    yield record
        assert result.next_offset > offset
        offset = result.next_offset


def values_of(log: Log) -> list[bytes | None]:
    return [record.value for record in read_all(log)]


def state_of(log: Log) -> dict[str, object]:
    """All state that must be the same after another recovery."""
    return {
        "records": read_all(log),
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "high watermark": log.high_watermark,
        "stable": log.last_stable_offset,
        "epochs": log.epochs.entries,
        # As a snapshot stores them: the last batch of each, not the last five.
        "producers": encode_snapshot(sorted(log.producers, key=lambda entry: entry.producer_id)),
        "segments": [(s.base_offset, s.size) for s in log.segments],
        "offset indexes": [_indexed(s, lambda s: s.offset_index.entries) for s in log.segments],
        "time indexes": [_indexed(s, lambda s: s.time_index.entries) for s in log.segments],
        "aborted": [s.transaction_index.entries for s in log.segments],
    }


def _indexed(segment: Segment, entries: Callable[[Segment], object]) -> object:
    return segment.with_indexes(lambda: entries(segment))
