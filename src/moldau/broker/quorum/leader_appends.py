"""Appends to the metadata log while this node leads."""

from collections.abc import Sequence

from moldau.broker.quorum.committed_batches import Appended, CommittedBatches
from moldau.broker.quorum.fetched_records import quorum_changes
from moldau.broker.quorum.measurements import Measurements
from moldau.broker.quorum.metadata_log import MetadataLog
from moldau.core.metadata.levels import encode_records, level_after
from moldau.core.metadata.loader import CommittedBatch
from moldau.core.metadata.snapshot_file import metadata_batch
from moldau.core.quorum.control_values import ControlValues
from moldau.core.quorum.history import Changes
from moldau.net.clock import Clock
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.control_records import OffsetAndEpoch, control_batch
from moldau.protocol.wire.schema import Message
from moldau.types import LeaderEpoch, Offset

# A caller that appends faster than the disk writes gets an error.
_PENDING_BATCHES_MAX = 10_000


class LeaderAppends:
    def __init__(
        self,
        log: MetadataLog,
        batches: CommittedBatches,
        clock: Clock,
        measurements: Measurements,
        batch_bytes_max: int,
    ) -> None:
        self.level: int | None = None
        """The metadata.version after all records of the log, committed or not."""
        self.last_ms = 0.0
        """When the last batch was appended, in the time of the monotonic clock."""
        self._log = log
        self._batches = batches
        self._clock = clock
        self._measurements = measurements
        self._batch_bytes_max = batch_bytes_max

    def begin_epoch(self) -> None:
        """Everything in the log is committed and delivered."""
        self.level = self._batches.level

    def append(self, records: Sequence[Message], epoch: LeaderEpoch, now_ms: int) -> None:
        """As one batch. Raises KafkaError if they are too large, or if the disk refuses them or is
        too slow; then the log is unchanged.
        """
        if len(self._batches.appended) >= _PENDING_BATCHES_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the disk of the metadata log cannot keep up"
            )
        encoded = encode_records(records, self.level)
        position = OffsetAndEpoch(self._log.log.log_end_offset, epoch)
        content = metadata_batch(encoded, position, now_ms)
        if len(content) > self._batch_bytes_max:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{len(records)} metadata records need {len(content)} bytes in one batch, "
                f"{self._batch_bytes_max} are allowed",
            )
        self._write(content, position, now_ms, records)
        self.level = level_after(records, self.level)

    def append_control(self, epoch: LeaderEpoch, values: ControlValues) -> Changes:
        """Returns what they say about the quorum. Raises KafkaError if the disk refuses them."""
        now_ms = self._clock.wall_ms()
        position = OffsetAndEpoch(self._log.log.log_end_offset, epoch)
        self._write(control_batch(values, position, now_ms), position, now_ms, ())
        return quorum_changes(values, position.base_offset)

    def _write(
        self, content: bytes, position: OffsetAndEpoch, now_ms: int, records: Sequence[Message]
    ) -> None:
        self._log.append(content, position.partition_leader_epoch, now_ms)
        last_offset = Offset(self._log.log.log_end_offset - 1)
        batch = CommittedBatch(
            position.base_offset,
            last_offset,
            position.partition_leader_epoch,
            now_ms,
            records,
        )
        self.last_ms = self._clock.mono_ms()
        self._batches.appended.append(Appended(batch, len(content), self.last_ms))
        self._measurements.records_appended += last_offset + 1 - position.base_offset
