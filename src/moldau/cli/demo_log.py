"""The log that the demo plays with, through the same doors that a broker uses."""

from collections.abc import Iterator
from pathlib import Path

from moldau.config.log import LogConfig
from moldau.protocol.batch_builder import BatchOptions, build_batch
from moldau.protocol.batches import Record, RecordBatch, iterate_batches
from moldau.protocol.compression import Compression
from moldau.protocol.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    committed_batches,
    end_transaction_marker,
)
from moldau.storage.directory import LogDirectory, format_directory
from moldau.storage.filesystem import DiskFileSystem
from moldau.storage.log import LogOptions
from moldau.storage.log_read import Isolation
from moldau.storage.logs import Logs
from moldau.storage.meta_properties import MetaProperties
from moldau.storage.producer_state import AppendOrigin
from moldau.types import BrokerId, TopicPartition, Uuid

_CLUSTER_ID = "moldau-demo-0000000000"
_NODE_ID = BrokerId(1)
_TOPIC_ID = Uuid(bytes(range(1, 17)))
_PARTITION = TopicPartition("river", 0)
_LEADER_EPOCH = 0
_PRODUCER_ID = 7
# Before KIP-890: the producer's epoch stays the same over its transactions.
_TRANSACTION_VERSION = 1
SEGMENT_BYTES = 2048
_RECORDS_PER_BATCH = 40
_READ_BYTES = 1 << 20
_GAUGES = ("Český Krumlov", "České Budějovice", "Praha", "Mělník")
_OPTIONS = LogOptions(
    config=LogConfig(internal_segment_bytes=SEGMENT_BYTES, index_interval_bytes=1024)
)


class DemoLog:
    """One partition: water levels along the river."""

    def __init__(self, path: Path, now_ms: int) -> None:
        self._path = path
        self._now_ms = now_ms
        self._filesystem = DiskFileSystem()
        meta = MetaProperties(
            cluster_id=_CLUSTER_ID, node_id=_NODE_ID, directory_id=Uuid(bytes(range(17, 33)))
        )
        format_directory(self._filesystem, path, meta)
        directory = LogDirectory.open(
            self._filesystem, path, cluster_id=_CLUSTER_ID, node_id=_NODE_ID
        )
        self._logs = Logs(directory, lambda _: _OPTIONS)
        self._log = self._logs.create(_PARTITION, _TOPIC_ID, now_ms)
        self._log.start_leader_epoch(_LEADER_EPOCH)
        self._next_sequence = 0

    def write_every_codec(self) -> Iterator[tuple[str, int, int, int]]:
        """(codec, records, bytes on disk, first offset) of each batch."""
        for codec in Compression:
            batch = build_batch(self._levels(codec.name), BatchOptions(compression=codec))
            yield codec.name.lower(), _RECORDS_PER_BATCH, len(batch), self._append(batch)

    def write_transactions(self) -> Iterator[tuple[str, int, int]]:
        """(how it ended, first offset, the marker's offset) of each transaction."""
        for control_type in (ControlType.COMMIT, ControlType.ABORT):
            options = BatchOptions(
                producer_id=_PRODUCER_ID,
                producer_epoch=0,
                base_sequence=self._next_sequence,
                is_transactional=True,
            )
            records = self._levels(control_type.name.lower())[:5]
            self._next_sequence += len(records)
            first_offset = self._append(build_batch(records, options))
            marker = end_transaction_marker(
                EndTransactionMarker(control_type=control_type, coordinator_epoch=0),
                MarkerOrigin(producer_id=_PRODUCER_ID, producer_epoch=0),
                self._now_ms,
            )
            marker_offset = self._append(marker, AppendOrigin.COORDINATOR)
            yield control_type.name.lower(), first_offset, marker_offset

    def read(self, *, committed: bool) -> list[Record]:
        isolation = Isolation.COMMITTED if committed else Isolation.HIGH_WATERMARK
        return [record for batch in self._read(isolation) for record in batch.records()]

    def crash_while_writing(self, torn_bytes: int) -> Path:
        """Leave half a batch at the end and no clean stop. The file that was hit."""
        self._log.flush()
        self._logs.checkpoint()
        log_file = max(self._log.path.glob("*.log"))
        self._log.abandon()
        self._logs.directory.close()
        with log_file.open("ab") as file:
            file.write(build_batch(self._levels("torn"))[:torn_bytes])
        return log_file

    def recover(self) -> tuple[int, int]:
        """The log's end before the crash and after the recovery."""
        before = self._log.log_end_offset
        directory = LogDirectory.open(
            self._filesystem, self._path, cluster_id=_CLUSTER_ID, node_id=_NODE_ID
        )
        self._logs = Logs(directory, lambda _: _OPTIONS)
        self._logs.load(self._now_ms)
        self._log = self._logs.by_partition[_PARTITION]
        return before, self._log.log_end_offset

    def stop(self) -> None:
        self._logs.stop()

    def _levels(self, origin: str) -> list[Record]:
        return [
            Record(
                index,
                self._now_ms + index,
                _GAUGES[index % len(_GAUGES)].encode(),
                f"level {120 + (index * 7) % 40} cm".encode(),
                (("origin", origin.lower().encode()),),
            )
            for index in range(_RECORDS_PER_BATCH)
        ]

    def _append(self, batch: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> int:
        result = self._log.append_as_leader(
            bytearray(batch),
            _LEADER_EPOCH,
            self._now_ms,
            origin=origin,
            transaction_version=_TRANSACTION_VERSION,
        )
        self._log.raise_high_watermark(self._log.log_end_offset)
        return result.first_offset

    def _read(self, isolation: Isolation) -> Iterator[RecordBatch]:
        """What a consumer keeps of what it fetches."""
        offset = self._log.log_start_offset
        while (result := self._log.read(offset, _READ_BYTES, isolation=isolation)).records:
            aborted = [(one.producer_id, one.first_offset) for one in result.aborted or ()]
            yield from committed_batches(iterate_batches(result.records), aborted)
            offset = result.next_offset
