"""A log on a simulated disk, for tests of compaction: written through the log itself, read back
batch by batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from moldau.config.cleaner import CleanerConfig
from moldau.config.log import LogConfig
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch, iterate_batches
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    committed_batches,
    end_transaction_marker,
)
from moldau.storage.compaction.cleaner import Compaction, LogCleaner
from moldau.storage.compaction.plan import collect_aborted
from moldau.storage.directory.directory import LogDirectory, format_directory
from moldau.storage.directory.meta_properties import MetaProperties
from moldau.storage.disk.filesystem import FileSystem
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.recovery import Checkpointed, LogLocation, open_log
from moldau.storage.producers.state import AppendOrigin
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import BrokerId, LeaderEpoch, ProducerEpoch, TopicPartition, Uuid

ROOT = Path("/data")
NAME = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
HASH_KEY = bytes(range(16))
META = MetaProperties(cluster_id="c", node_id=BrokerId(1), directory_id=Uuid(bytes(16)))

Pair = tuple[bytes | None, bytes | None]


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def compacting(**settings: object) -> LogConfig:
    chosen: dict[str, object] = {
        "cleanup_policy": ("compact",),
        "internal_segment_bytes": 1 << 20,
        "index_interval_bytes": 100,
        "min_cleanable_dirty_ratio": 0.0,
        **settings,
    }
    return LogConfig(**chosen)  # type: ignore[arg-type]


def open_directory(filesystem: FileSystem, root: Path = ROOT) -> LogDirectory:
    format_directory(filesystem, root, META)
    return LogDirectory.open(filesystem, root, cluster_id="c", node_id=BrokerId(1))


@dataclass
class CompactedLog:
    filesystem: FileSystem = field(default_factory=SimulatedDisk)
    config: LogConfig = field(default_factory=compacting)
    cleaner_config: CleanerConfig = field(default_factory=CleanerConfig)
    root: Path = ROOT
    now_ms: int = NOW_MS
    checkpointed: Checkpointed = field(default_factory=Checkpointed)

    def __post_init__(self) -> None:
        self.directory = open_directory(self.filesystem, self.root)
        self.reopen()
        self.cleaner = LogCleaner(self.directory, self.cleaner_config, HASH_KEY)
        self.sequences: dict[tuple[int, int], int] = {}

    def reopen(self) -> Log:
        """Recover the log as after a crash."""
        self.log = open_log(
            LogLocation(
                directory=self.directory,
                path=self.directory.path_of(NAME),
                topic_partition=NAME,
            ),
            LogOptions(config=self.config),
            self.checkpointed,
            is_clean=False,
            now_ms=self.now_ms,
        )
        self.log.raise_high_watermark(self.log.log_end_offset)
        return self.log

    # Writing

    def put(
        self,
        *pairs: Pair,
        producer_id: int = -1,
        epoch: int = 0,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
        timestamps: Sequence[int] | None = None,
    ) -> int:
        """Appends one batch and returns its first offset."""
        stamps = timestamps or [self.now_ms] * len(pairs)
        records = [
            Record(number, stamp, key, value)
            for number, ((key, value), stamp) in enumerate(zip(pairs, stamps, strict=True))
        ]
        options = BatchOptions(compression=compression)
        if producer_id >= 0:
            sequence = self.sequences.get((producer_id, epoch), 0)
            self.sequences[producer_id, epoch] = sequence + len(pairs)
            options = BatchOptions(
                compression=compression,
                producer_id=producer_id,
                producer_epoch=ProducerEpoch(epoch),
                base_sequence=sequence,
                is_transactional=transactional,
            )
        batch = bytearray(build_batch(records, options))
        result = self.log.append_as_leader(batch, LeaderEpoch(0), self.now_ms)
        self.log.raise_high_watermark(self.log.log_end_offset)
        return result.first_offset

    def end(self, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
        """Appends a transaction marker and returns its offset."""
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = end_transaction_marker(
            EndTransactionMarker(control_type=kind, coordinator_epoch=0),
            MarkerOrigin(producer_id=producer_id, producer_epoch=ProducerEpoch(epoch)),
            self.now_ms,
        )
        result = self.log.append_as_leader(
            bytearray(marker),
            LeaderEpoch(0),
            self.now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=0,
        )
        self.log.raise_high_watermark(self.log.log_end_offset)
        return result.first_offset

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def clean(self, *, after_ms: int = 0) -> Compaction:
        self.now_ms += after_ms
        return self.cleaner.compact(self.log, self.now_ms)

    # Reading

    def content(self) -> bytes:
        return b"".join(bytes(s.file.read(0, s.size)) for s in self.log.segments)

    def batches(self) -> list[RecordBatch]:
        return list(iterate_batches(self.content()))

    def records(self) -> list[Seen]:
        """Every record except markers, committed or not."""
        return list(_seen(batch for batch in self.batches() if not batch.is_control))

    def committed(self) -> list[Seen]:
        """The records that a read_committed consumer sees up to the last stable offset."""
        stable = self.log.last_stable_offset
        aborted = collect_aborted(self.log.segments, self.log.log_end_offset)
        visible = committed_batches(
            (batch for batch in self.batches() if batch.base_offset < stable),
            [(txn.producer_id, txn.first_offset) for txn in aborted],
        )
        return list(_seen(visible))

    def values(self) -> dict[bytes, bytes]:
        """The table that a reader of the whole topic gets."""
        table: dict[bytes, bytes] = {}
        for record in self.committed():
            if record.key is None:
                continue
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
        return table

    def markers(self) -> list[int]:
        return [b.base_offset for b in self.batches() if b.is_control and b.record_count]

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]

    def file_names(self) -> list[str]:
        return self.filesystem.list_directory(self.log.path)


def _seen(batches: Iterator[RecordBatch]) -> Iterator[Seen]:
    for batch in batches:
        for record in batch.records():
            yield Seen(record.offset, record.key, record.value, record.timestamp)
