"""Opening a log. After a clean stop only its end is checked. After a crash every batch from the
recovery point on is checked: length, magic, checksum, order. Indexes, epochs and producer state are
rebuilt on the way, and a torn tail is truncated.

Promised records are never cut silently. If the sound part ends before the recovery point (they were
flushed) or before the high watermark (consumers may have read them), nothing is changed, and the
log opens with `damage` and refuses all work until an operator decides: `quarantine` puts the bad
files aside and keeps the sound part, to be completed from a replica. See docs/adr/0002.
"""

from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from moldau.frozen import frozen
from moldau.protocol.records.scanned_batch import (
    BASE_OFFSET,
    LAST_OFFSET,
    LEADER_EPOCH,
    ScannedBatch,
)
from moldau.storage.directory.clean_stop_manifest import LogInventory, checksum_of
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.failures import CorruptCheckpointError, CorruptIndexError, refused_if_full
from moldau.storage.log.damage import (
    Damage,
    forget_damage,
    note_damage,
    note_damaged_segments,
    noted_inventory,
    noted_segments,
)
from moldau.storage.log.damaged_bytes import TolerantScan, is_cut
from moldau.storage.log.epochs import EPOCH_FILE, LeaderEpochCache
from moldau.storage.log.interrupted_changes import complete_or_undo
from moldau.storage.log.log import LoadedLog, Log, LogOptions
from moldau.storage.log.names import (
    DAMAGE_FILE_NAME,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentFileName,
)
from moldau.storage.producers.replay import replay_headers, replay_segment
from moldau.storage.producers.snapshots import ProducerSnapshots
from moldau.storage.producers.state import ProducerStateTable
from moldau.storage.segment.scan import SegmentScan
from moldau.storage.segment.segment import Segment, SegmentSettings
from moldau.storage.segment.segments import Segments, link
from moldau.storage.segment.walk import CorruptSegmentError
from moldau.types import FIRST_OFFSET, NO_OFFSET, LeaderEpoch, Offset, TopicPartition

_epoch_of = itemgetter(4)


@frozen(kw_only=True)
class Checkpointed:
    """The entries for one log in the directory's checkpoint files."""

    recovery_point: int = 0
    log_start_offset: Offset = FIRST_OFFSET
    high_watermark: Offset = FIRST_OFFSET
    inventory: LogInventory | None = None
    """The segments as of the previous clean stop, if known."""

    @property
    def promised_end(self) -> Offset:
        return Offset(max(self.recovery_point, self.high_watermark))

    def capped_at(self, end_offset: Offset) -> "Checkpointed":
        return replace(
            self,
            recovery_point=min(self.recovery_point, end_offset),
            high_watermark=min(self.high_watermark, end_offset),
            inventory=None,
        )


@frozen(kw_only=True)
class LogLocation:
    """The log to open: its partition, its path, and the log directory that it belongs to."""

    directory: LogDirectory
    path: Path
    topic_partition: TopicPartition
    is_new: bool = False
    """The caller has just created it, and syncs its directory entries before it is used."""


def open_log(
    location: LogLocation,
    options: LogOptions,
    checkpointed: Checkpointed,
    *,
    is_clean: bool,
    now_ms: int,
) -> Log:
    """Open or create the log in `location.path`."""
    with location.directory.offline_on_error:
        filesystem = location.directory.filesystem
        if not filesystem.exists(location.path):
            filesystem.make_directory(location.path)
            filesystem.sync_directory(location.path.parent)
        loader = _Loader(location, options, checkpointed, now_ms)
        loaded = loader.load(is_clean=is_clean)
        log = Log(location.directory, location.path, location.topic_partition, options, loaded)
        if log.damage is None:
            log.reload_producers(now_ms)
            log.snapshots.remove_stray(log.segments.base_offsets)
    if log.damage is None and log.flushed_offset < log.log_end_offset:
        log.mark_dirty()
    return log


class _SoundEnd(NamedTuple):
    """Where the sound batches end: offset after them, index of the segment, bytes of it."""

    offset: Offset
    segment_index: int
    size: int


class _Loader:
    def __init__(
        self, location: LogLocation, options: LogOptions, checkpointed: Checkpointed, now_ms: int
    ) -> None:
        self._filesystem = location.directory.filesystem
        self._path = location.path
        self._scanned = location.directory.recovered
        self._syncs_new_names = not location.is_new
        self._checkpointed = checkpointed
        self._now_ms = now_ms
        config = options.config
        self._settings = SegmentSettings(config.index_interval_bytes, config.segment_index_bytes)
        self._scan_from = Offset(checkpointed.recovery_point)
        # Below this offset everything was flushed: damage there is not a write undone by a power
        # failure.
        self._tolerated_end = checkpointed.promised_end
        if options.flush_policy == "os":
            self._tolerated_end = Offset(checkpointed.recovery_point)
        # In a log that was never compacted, a gap between segments means a write undone by a power
        # failure.
        self._gaps_allowed = config.compacts
        self._producers = ProducerStateTable(expiration_ms=options.producer_id_expiration_ms)
        self._producers.verifies = options.verifies_transactions

    def load(self, *, is_clean: bool) -> LoadedLog:
        listed = self._filesystem.list_directory(self._path)
        files = complete_or_undo(self._filesystem, self._path, listed, self._settings)
        segments = self._segments(files)
        self._snapshots = ProducerSnapshots(self._filesystem, self._path)
        self._epochs = self._read_epochs()
        self._inventory = self._checkpointed.inventory or {}
        is_noted = DAMAGE_FILE_NAME in listed
        suspects = noted_segments(self._filesystem, self._path) if is_noted else frozenset()
        if suspects is None:
            self._scan_from = FIRST_OFFSET
            self._inventory = noted_inventory(self._filesystem, self._path) or self._inventory
        for segment in segments:
            if segment.base_offset in (suspects or ()):
                segment.examine()
        is_clean = is_clean and suspects is not None
        is_clean = is_clean and not any(each.is_rolled for each in segments)
        is_clean = self._is_consistent(files, segments, is_clean=is_clean) and is_clean
        damage = self._lost_since_clean_stop(segments)
        end_offset = self._clean_end(segments) if is_clean else None
        if damage is not None:
            end_offset = damage.first_offset
        elif end_offset is None:
            is_clean = False
            end_offset, damage = self._recover(segments)
        elif end_offset < self._checkpointed.promised_end:
            damage = self._missing_records(segments, end_offset, "the log ends there")
        start = self._checkpointed.log_start_offset
        if damage is None and end_offset < start and any(segment.size for segment in segments):
            # Either offset may be wrong. Accepting the damage puts all segments aside and continues
            # at the start offset.
            damage = Damage(
                end_offset, start, NO_OFFSET, f"it ends before its start offset {start}"
            )
        loaded = self._result(segments, end_offset, damage, is_clean=is_clean)
        self._note(damage, segments, is_noted=is_noted)
        return loaded

    def _note(self, damage: Damage | None, segments: list[Segment], *, is_noted: bool) -> None:
        reasons = {s.base_offset: str(each) for s in segments for each in s.damaged}
        if damage is not None:
            note_damage(self._filesystem, self._path, damage.reason, self._inventory)
        elif reasons:
            note_damaged_segments(self._filesystem, self._path, reasons)
        elif is_noted:
            forget_damage(self._filesystem, self._path)

    def _result(
        self, segments: list[Segment], end_offset: Offset, damage: Damage | None, *, is_clean: bool
    ) -> LoadedLog:
        checkpointed = self._checkpointed
        if damage is None and end_offset < checkpointed.log_start_offset:
            # The segments are empty.
            for segment in segments:
                segment.remove_files()
            segments = []
            self._epochs.clear()
            self._epochs.flush_if_possible()
            self._producers.clear(checkpointed.log_start_offset)
        if not segments:
            segments = [self._new_segment(max(end_offset, checkpointed.log_start_offset))]
            end_offset = segments[0].base_offset
        for sealed in segments[:-1]:
            sealed.sealed = True
        log_start_offset = max(checkpointed.log_start_offset, segments[0].base_offset)
        log_start_offset = min(log_start_offset, end_offset)
        if damage is None:
            # In this order: at the start of an empty log the next truncation would drop the epoch.
            self._epochs.truncate_from_start(log_start_offset)
            self._epochs.truncate_from_end(end_offset)
            self._epochs.flush_if_possible()
            segments[-1].prepare_appends()
        flushed = end_offset if is_clean else min(checkpointed.recovery_point, end_offset)
        return LoadedLog(
            segments=Segments(segments),
            epochs=self._epochs,
            producers=self._producers,
            snapshots=self._snapshots,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            high_watermark=max(min(checkpointed.high_watermark, end_offset), log_start_offset),
            flushed_offset=Offset(max(flushed, log_start_offset)),
            damage=damage,
        )

    def _segments(self, files: list[SegmentFileName]) -> list[Segment]:
        logs = sorted(name for name in files if name.kind == LOG_SUFFIX)
        segments = [
            Segment(
                self._filesystem,
                self._path,
                name.base_offset,
                self._settings,
                created_ms=self._now_ms,
                life=name.life,
            )
            for name in logs
        ]
        link(segments)
        return segments

    def _new_segment(self, base_offset: Offset) -> Segment:
        segment = Segment(
            self._filesystem, self._path, base_offset, self._settings, created_ms=self._now_ms
        )
        with refused_if_full(segment.path()):
            segment.create()
        if self._syncs_new_names:
            self._filesystem.sync_directory(self._path)
        return segment

    def _read_epochs(self) -> LeaderEpochCache:
        path = self._path / EPOCH_FILE
        try:
            return LeaderEpochCache(self._filesystem, path)
        except CorruptCheckpointError:
            return LeaderEpochCache(self._filesystem, path, entries=())

    # After a clean stop

    def _is_consistent(
        self, files: list[SegmentFileName], segments: list[Segment], *, is_clean: bool
    ) -> bool:
        """Rebuilds missing indexes of segments that no scan will visit. Returns False if only a
        scan can help: a lost transaction index can be rebuilt from the batches alone.
        """
        existing = {(name.base_offset, name.kind) for name in files}
        first_scanned = len(segments)
        if not is_clean:
            first_scanned = max(Segments(segments).floor_index(self._scan_from), 0)
        for segment in segments[:first_scanned]:
            base_offset = segment.base_offset
            if not self._has_all_aborts(segment):
                self._scan_from = min(self._scan_from, base_offset)
                return False
            if (base_offset, TRANSACTION_INDEX_SUFFIX) in existing:
                try:
                    segment.transaction_index.sanity_check()
                except CorruptIndexError:
                    self._scan_from = min(self._scan_from, base_offset)
                    return False
            if (
                not {(base_offset, OFFSET_INDEX_SUFFIX), (base_offset, TIME_INDEX_SUFFIX)}
                <= existing
            ):
                segment.rebuild_indexes()
        return True

    def _has_all_aborts(self, segment: Segment) -> bool:
        entry = self._inventory.get(segment.base_offset)
        return entry is None or entry.aborted_checksum == checksum_of(
            self._filesystem, segment.path(TRANSACTION_INDEX_SUFFIX)
        )

    def _lost_since_clean_stop(self, segments: list[Segment]) -> Damage | None:
        """Detects files that are missing or shorter, even where the rest looks sound."""
        by_base_offset = {segment.base_offset: segment for segment in segments}
        sound: Segment | None = None
        for base_offset, entry in sorted(self._inventory.items()):
            segment = by_base_offset.get(base_offset)
            if segment is not None and segment.size >= entry.log_bytes:
                sound = segment
                continue
            last = sound if segment is None else segment
            name = f"{base_offset:020d}{LOG_SUFFIX}"
            reason = f"{name} is missing"
            if segment is not None:
                reason = f"{name} had {entry.log_bytes} bytes and has {segment.size}"
            if last is None:
                return Damage(base_offset, self._checkpointed.promised_end, NO_OFFSET, reason)
            end_offset = _contiguous_end(last)
            promised = self._checkpointed.promised_end
            return Damage(end_offset, promised, last.base_offset, reason)
        return None

    def _clean_end(self, segments: list[Segment]) -> Offset | None:
        """The log's end, or None if the last segment does not end with a whole batch."""
        if not segments:
            return self._checkpointed.log_start_offset
        try:
            end_offset = segments[-1].next_offset()
            if self._epochs.latest_epoch is None and end_offset > segments[0].base_offset:
                for segment in segments:
                    for headers in SegmentScan(segment.file, 0, segment.size, verify_crc=False):
                        self._learn_epochs(headers)
        except CorruptSegmentError:
            return None
        return end_offset

    # After a crash

    def _recover(self, segments: list[Segment]) -> tuple[Offset, Damage | None]:
        earliest = self._epochs.earliest_entry
        log_start_offset = self._checkpointed.log_start_offset
        if earliest is None or earliest.start_offset > log_start_offset:
            # Nothing was flushed yet, the file is lost, or the log's start was lowered for a
            # truncation that did not take place. Offsets before the start need no epoch.
            self._epochs.clear()
            self._scan_from = min(self._scan_from, log_start_offset)
        first = max(Segments(segments).floor_index(self._scan_from), 0)
        if 0 < first < len(segments) and segments[first].base_offset == self._scan_from:
            # It may have been sealed after its last flush.
            segments[first - 1].complete_indexes()
        self._restore_producers(segments[: first + 1])
        end_offset = segments[first].base_offset if segments else self._scan_from
        for segment_index in range(first, len(segments)):
            segment = segments[segment_index]
            must_follow = segment.is_rolled or not self._gaps_allowed
            must_follow = must_follow and not (
                segment_index > first and _ends_damaged(segments[segment_index - 1])
            )
            if segment.base_offset > end_offset and must_follow:
                end = _SoundEnd(end_offset, segment_index - 1, segments[segment_index - 1].size)
                return self._cut_after(segments, end, f"{segment} does not follow")
            end_offset = max(end_offset, segment.base_offset)
            scan = TolerantScan(
                segment.file, 0, segment.size, offsets=range(end_offset, segment.offset_limit),
                promised_end=self._tolerated_end,
            )  # fmt: skip
            self._rebuild(segment, scan)
            self._scanned.bytes_scanned += segment.size
            end_offset = scan.next_offset
            if segment_index == len(segments) - 1 and _ends_damaged(segment):
                tail = segment.damaged[-1]
                if is_cut(segment.file, segment.size, tail):
                    end = _SoundEnd(end_offset, segment_index, tail.position)
                    segment.damaged = segment.damaged[:-1]
                    return self._cut_after(segments, end, tail.reason)
                # The promised records are lost, and no other record may get their offsets.
                return max(end_offset, self._checkpointed.promised_end), None
            if scan.problem is not None:
                end = _SoundEnd(end_offset, segment_index, scan.valid_end)
                return self._cut_after(segments, end, scan.problem)
        if end_offset < self._checkpointed.promised_end:
            return end_offset, self._missing_records(segments, end_offset, "the log ends there")
        return end_offset, None

    def _cut_after(
        self, segments: list[Segment], end: "_SoundEnd", problem: str
    ) -> tuple[Offset, Damage | None]:
        """Truncate everything after the sound part, unless it was promised."""
        if end.offset < self._checkpointed.promised_end:
            return end.offset, self._missing_records(
                segments[: end.segment_index + 1], end.offset, problem
            )
        cut = sum(each.size for each in segments[end.segment_index :]) - end.size
        self._scanned.bytes_cut += cut
        # From the end backwards, each step synced before the next: no crash leaves a hole.
        for later in reversed(segments[end.segment_index + 1 :]):
            later.remove_files()
        del segments[end.segment_index + 1 :]
        segments[-1].followed_by(None)
        self._filesystem.sync_directory(self._path)
        segments[-1].cut(end.size)
        segments[-1].file.sync()
        return end.offset, None

    def _restore_producers(self, segments: list[Segment]) -> None:
        """As of the start of the last of `segments`, which will be scanned first."""
        if not segments:
            return
        base_offset = segments[-1].base_offset
        log_start_offset = self._checkpointed.log_start_offset
        self._snapshots.reload(
            self._producers,
            log_start_offset=min(log_start_offset, base_offset),
            log_end_offset=base_offset,
            now_ms=self._now_ms,
        )
        start = max(self._producers.end_offset, log_start_offset)
        if start < base_offset:
            for segment in Segments(segments[:-1]).overlapping(start, base_offset):
                replay_segment(self._producers, segment, start, base_offset)
        self._producers.end_offset = base_offset

    def _rebuild(self, segment: Segment, scan: TolerantScan) -> None:
        self._producers.end_offset = segment.base_offset
        self._snapshots.take(self._producers, sync=False)
        segment.begin_index_rebuild()
        segment.transaction_index.reset()
        for headers in scan:
            segment.index_scanned(headers)
            self._learn_epochs(headers)
            replay_headers(self._producers, segment, headers, index_aborts=True)
        segment.note_damaged(tuple(scan.damaged))
        segment.finish_index_rebuild()
        segment.trust()
        segment.release()
        self._producers.end_offset = Offset(scan.next_offset)

    def _learn_epochs(self, headers: list[ScannedBatch]) -> None:
        latest = self._epochs.latest_epoch
        if latest is not None and max(map(_epoch_of, headers), default=latest) <= latest:
            return
        for header in headers:
            if header[LEADER_EPOCH] >= 0 and (latest is None or header[LEADER_EPOCH] > latest):
                latest = LeaderEpoch(header[LEADER_EPOCH])
                self._epochs.assign(latest, Offset(header[BASE_OFFSET]))

    def _missing_records(self, segments: list[Segment], end_offset: Offset, reason: str) -> Damage:
        base_offset = segments[-1].base_offset if segments else end_offset
        return Damage(end_offset, self._checkpointed.promised_end, base_offset, reason)


def _ends_damaged(segment: Segment) -> bool:
    return bool(segment.damaged) and segment.damaged[-1].end == segment.size


def _contiguous_end(segment: Segment) -> Offset:
    """The offset after the batches that follow the base offset without a gap."""
    end_offset = segment.base_offset
    for headers in SegmentScan(segment.file, 0, segment.size, verify_crc=True):
        for header in headers:
            if header[BASE_OFFSET] > end_offset:
                return end_offset
            end_offset = Offset(header[LAST_OFFSET] + 1)
    return end_offset
