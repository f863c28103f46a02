"""Decides by Kafka's rules which segments to compact. Runs in the thread that owns the log; a plan
is immutable, so that its pass may run in another thread.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from moldau.config.log import LogConfig
from moldau.frozen import frozen
from moldau.storage.log.damaged_bytes import DamagedBytes
from moldau.storage.log.log import Log
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.types import (
    FIRST_OFFSET,
    INT32_MAX,
    OFFSET_MAX,
    Offset,
    ProducerEpoch,
    TopicPartition,
)


class LastRecord(NamedTuple):
    """The last write of a producer; `last_data_offset` is -1 if it was only a marker."""

    last_data_offset: Offset
    producer_epoch: ProducerEpoch


@frozen
class CleanableLog:
    """A log with the range that may be cleaned and how dirty it is."""

    log: Log
    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """A record is older than max.compaction.lag.ms, so the log is due at any dirty ratio."""
    checkpoint_was_wrong: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.is_overdue and self.cleanable_bytes > 0:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


@frozen
class SourceSegment:
    """A sealed segment as the pass sees it: a path and numbers, without the owner's file handle."""

    base_offset: Offset
    path: Path
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int
    damaged: tuple[DamagedBytes, ...] = ()
    """Known damage. Such a segment is not rewritten."""
    offset_limit: Offset = OFFSET_MAX
    """A batch that claims this offset or a later one is damaged."""


@frozen(kw_only=True)
class CompactionPlan:
    topic_partition: TopicPartition
    directory: Path
    config: LogConfig
    now_ms: int
    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    dirty_position: int
    """Lower bound for the position of the batch with `first_dirty_offset` in its segment."""
    sources: tuple[SourceSegment, ...]
    aborted: tuple[AbortedTransaction, ...]
    last_records: Mapping[int, LastRecord]


def segments_between(segments: Sequence[Segment], start: Offset, end: Offset) -> list[Segment]:
    """From the segment that contains `start` to the one that contains `end - 1`."""
    if end <= start:
        return []
    first = 0
    for number, segment in enumerate(segments):
        if segment.base_offset <= start:
            first = number
    return [segment for segment in segments[first:] if segment.base_offset < end]


def assess(log: Log, checkpoint: Offset | None, now_ms: int) -> CleanableLog:
    """`checkpoint` is the offset up to which the log was cleaned before, if known."""
    with log.damage_handler:
        return _assess(log, checkpoint, now_ms)


def _assess(log: Log, checkpoint: Offset | None, now_ms: int) -> CleanableLog:
    start, end = log.log_start_offset, log.log_end_offset
    wrong = checkpoint is not None and not start <= checkpoint <= end
    first_dirty = start if checkpoint is None or wrong else checkpoint
    segments = list(log.segments)
    limit = max(first_dirty, _first_uncleanable(log, segments, first_dirty, now_ms))
    # Whole segments only: the one that contains the limit is not cleaned.
    later = segments_between(segments, limit, segments[-1].base_offset)
    first_uncleanable = min(
        later[0].base_offset if later else segments[-1].base_offset,
        _first_followed_by_rolled(segments),
    )
    clean = segments_between(segments, FIRST_OFFSET, first_dirty)
    cleanable = segments_between(segments, min(first_dirty, first_uncleanable), first_uncleanable)
    return CleanableLog(
        log=log,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=sum(segment.size for segment in clean),
        cleanable_bytes=sum(segment.size for segment in cleanable),
        is_overdue=_is_overdue(log, segments, first_dirty, now_ms),
        checkpoint_was_wrong=wrong,
    )


def _first_uncleanable(
    log: Log, segments: Sequence[Segment], first_dirty: Offset, now_ms: int
) -> Offset:
    active = segments[-1].base_offset
    limits = [log.last_stable_offset, active]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in segments_between(segments, first_dirty, active):
            if segment.largest_timestamp_ms() > now_ms - lag_ms:
                limits.append(segment.base_offset)
                break
    return min(limits)


def _first_followed_by_rolled(segments: Sequence[Segment]) -> Offset:
    """After a crash, a gap before a rolled segment means lost records. So compaction must not
    create such a gap, not even before the log's start offset, which may be ahead of the flushed
    one.
    """
    for before, segment in pairwise(segments):
        if segment.is_rolled:
            return before.base_offset
    return segments[-1].base_offset


def _is_overdue(log: Log, segments: Sequence[Segment], first_dirty: Offset, now_ms: int) -> bool:
    clean_until_ms = now_ms - log.config.max_compaction_lag_ms
    if clean_until_ms <= 0:
        return False
    dirty = segments_between(segments, first_dirty, segments[-1].base_offset)
    return any(0 < segment.first_timestamp_ms() < clean_until_ms for segment in dirty)


def make_plan(cleanable: CleanableLog, now_ms: int) -> CompactionPlan:
    with cleanable.log.damage_handler:
        return _make_plan(cleanable, now_ms)


def _make_plan(cleanable: CleanableLog, now_ms: int) -> CompactionPlan:
    log = cleanable.log
    end = cleanable.first_uncleanable_offset
    sources = [segment for segment in log.segments if segment.base_offset < end]
    dirty = segments_between(sources, cleanable.first_dirty_offset, end)
    return CompactionPlan(
        topic_partition=log.topic_partition,
        directory=log.path,
        config=log.config,
        now_ms=now_ms,
        first_dirty_offset=cleanable.first_dirty_offset,
        first_uncleanable_offset=end,
        dirty_position=_position_of(dirty[0], cleanable.first_dirty_offset) if dirty else 0,
        sources=tuple(map(_source, sources)),
        aborted=tuple(collect_aborted(log.segments, end)),
        last_records={
            entry.producer_id: LastRecord(entry.last_data_offset, entry.epoch)
            for entry in log.producers
        },
    )


def _position_of(segment: Segment, offset: Offset) -> int:
    if not segment.offset_index.is_loaded:
        # The pass reads from the beginning, in its own thread: the owner must not load an index
        # here.
        return 0
    return segment.with_indexes(lambda: segment.offset_index.lookup(offset)[1])


def _source(segment: Segment) -> SourceSegment:
    return SourceSegment(
        base_offset=segment.base_offset,
        path=segment.path(),
        size_bytes=segment.size,
        offset_index_bytes=segment.offset_index.bytes_at_most,
        time_index_bytes=segment.time_index.bytes_at_most,
        damaged=segment.damaged,
        offset_limit=segment.offset_limit,
    )


def collect_aborted(segments: Iterable[Segment], end: Offset) -> list[AbortedTransaction]:
    """The aborted transactions that begin before `end`; their markers may come after it."""
    found: list[AbortedTransaction] = []
    for segment in segments:
        aborted, complete = segment.transaction_index.collect(FIRST_OFFSET, end)
        found += aborted
        if complete:
            break
    return found


def group_segments(
    sources: Sequence[SourceSegment], config: LogConfig, first_uncleanable_offset: Offset
) -> list[list[SourceSegment]]:
    """Groups neighbours that fit into one segment, so that compaction does not leave many tiny
    segments. Sizes are those before cleaning: the result is never larger. A damaged segment forms a
    group of its own.
    """
    groups: list[list[SourceSegment]] = []
    for number, source in enumerate(sources):
        is_last = number + 1 == len(sources)
        end = first_uncleanable_offset if is_last else sources[number + 1].base_offset
        if groups and _fits(groups[-1], source, Offset(end - 1), config):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(
    group: Sequence[SourceSegment], source: SourceSegment, last_offset: Offset, config: LogConfig
) -> bool:
    index_max = config.segment_index_bytes
    members = (*group, source)
    return (
        not any(member.damaged for member in members)
        and sum(member.size_bytes for member in members) <= config.segment_size_max
        and sum(member.offset_index_bytes for member in members) <= index_max
        and sum(member.time_index_bytes for member in members) <= index_max
        and (source.size_bytes == 0 or last_offset - group[0].base_offset <= INT32_MAX)
    )
