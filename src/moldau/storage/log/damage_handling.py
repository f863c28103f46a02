"""How a log reacts to damage. If the damaged batches of a segment can be located, only those are
refused; otherwise the whole log goes offline. Both are recorded on the disk, so that the next start
examines the log again, and reported to the owner of the directory at once.
"""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.failures import DamagedFileError, DamageFound
from moldau.storage.log.damage import Damage, note_damage, note_damaged_segments
from moldau.storage.segment.walk import CorruptSegmentError
from moldau.types import Offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moldau.storage.log.damaged_bytes import DamagedBytes
    from moldau.storage.log.state import LogState
    from moldau.storage.segment.files import SegmentFiles


def watch(log: "LogState") -> None:
    """Watches the log's segments, and reports the damage that loading has found."""
    log.segments.watch(lambda segment, found: _on_damage(log, segment, found))
    for segment in log.segments:
        if segment.damaged:
            _limit_to_next_segment(log, segment)
            _report(log, segment, segment.damaged)


def examine(log: "LogState", path: Path) -> bool:
    for segment in log.segments:
        if segment.path() == path:
            segment.examine()
            return bool(segment.damaged)
    return False


def _on_damage(log: "LogState", segment: "SegmentFiles", damaged: "Sequence[DamagedBytes]") -> None:
    """`damaged` is the damage that was not known before."""
    _limit_to_next_segment(log, segment)
    if not damaged:
        return
    _report(
        log, segment, [each for each in segment.damaged if each.position in _positions(damaged)]
    )
    reasons = {s.base_offset: str(each) for s, each in log.damaged}
    if reasons:
        log.directory.do(_noting_segments(log, reasons))


def _positions(damaged: "Sequence[DamagedBytes]") -> set[int]:
    return {each.position for each in damaged}


def _limit_to_next_segment(log: "LogState", segment: "SegmentFiles") -> None:
    """Damage at the end of a segment extends no further than the start of the next one."""
    end = next((base for base in log.segments.base_offsets if base > segment.base_offset), None)
    end = log.log_end_offset if end is None else end
    segment.damaged = tuple(
        each._replace(next_offset=Offset(min(each.next_offset, end))) for each in segment.damaged
    )


def _report(log: "LogState", segment: "SegmentFiles", damaged: "Sequence[DamagedBytes]") -> None:
    for each in damaged:
        if each.first_offset == each.next_offset:
            # Trailing bytes after the last batch: no record is lost.
            continue
        log.directory.report_damage(
            DamageFound(
                log.topic_partition,
                segment.path(),
                each.first_offset,
                each.next_offset,
                str(each),
                is_offline=False,
            )
        )


def _noting_segments(log: "LogState", reasons: dict[Offset, str]) -> Steps[None]:
    with log.directory.offline_on_error:
        yield lambda: note_damaged_segments(log.filesystem, log.path, reasons)


def take_offline(log: "LogState", error: DamagedFileError) -> None:
    """Takes the log offline at once; the next start examines every batch."""
    digits = error.path.name[:20]
    base_offset = Offset(int(digits)) if digits.isdecimal() else log.log_start_offset
    promised_end = max(log.high_watermark, log.flushed_offset)
    log.damage = Damage(base_offset, promised_end, base_offset, error.reason)
    log.directory.report_damage(
        DamageFound(
            log.topic_partition,
            error.path,
            base_offset,
            promised_end,
            error.reason,
            is_offline=True,
        )
    )
    log.directory.do(_noting(log, str(error)))


def _noting(log: "LogState", reason: str) -> Steps[None]:
    with log.directory.offline_on_error:
        yield lambda: note_damage(log.filesystem, log.path, reason)


class DamageHandler:
    """Context manager around all access to a log's files. It refuses a closed or damaged log, turns
    damage found inside the block into an offline log, and disk errors into an offline directory.
    """

    __slots__ = ("_exit", "_log")

    def __init__(self, log: "LogState", *, reads_only: bool = False) -> None:
        self._log = log
        disk_errors = (
            log.directory.offline_on_read_error if reads_only else log.directory.offline_on_error
        )
        self._exit = disk_errors.__exit__

    def __enter__(self) -> None:
        log = self._log
        if log.directory.failure is not None:
            log.directory.check_online()
        if log.is_abandoned:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.topic_partition} is closed or deleted"
            )
        damage = log.damage
        if damage is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{log.topic_partition} is damaged from offset {damage.first_offset} "
                f"to {damage.promised_end}: {damage.reason}",
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        if isinstance(error, DamagedFileError):
            raise self._damaged(error) from error
        self._exit(kind, error, trace)

    def _damaged(self, error: DamagedFileError) -> KafkaError:
        log = self._log
        with log.directory.offline_on_read_error:
            if isinstance(error, CorruptSegmentError) and examine(log, error.path):
                return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
        take_offline(log, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
