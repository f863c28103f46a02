"""What a log does about damage: where batches of a segment are damaged, only these are refused;
what cannot be told apart takes the whole log offline. Either is noted on the disk, so that the next
start looks at it again, and the owner of the directory hears of it at once.
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
    """Also for what the start has found."""
    log.segments.watch(lambda segment, found: _found(log, segment, found))
    for segment in log.segments:
        if segment.damaged:
            _limit(log, segment)
            _tell(log, segment, segment.damaged)


def examine(log: "LogState", path: Path) -> bool:
    for segment in log.segments:
        if segment.path() == path:
            segment.examine()
            return bool(segment.damaged)
    return False


def _found(log: "LogState", segment: "SegmentFiles", found: "Sequence[DamagedBytes]") -> None:
    """`found` is what was not known before."""
    _limit(log, segment)
    if not found:
        return
    _tell(log, segment, [each for each in segment.damaged if each.position in _positions(found)])
    reasons = {s.base_offset: str(each) for s, each in log.damaged}
    if reasons:
        log.directory.do(_noting_segments(log, reasons))


def _positions(found: "Sequence[DamagedBytes]") -> set[int]:
    return {each.position for each in found}


def _limit(log: "LogState", segment: "SegmentFiles") -> None:
    """Damage up to the end of a segment reaches no further than the next one."""
    end = next((base for base in log.segments.base_offsets if base > segment.base_offset), None)
    end = log.log_end_offset if end is None else end
    segment.damaged = tuple(
        each._replace(next_offset=Offset(min(each.next_offset, end))) for each in segment.damaged
    )


def _tell(log: "LogState", segment: "SegmentFiles", found: "Sequence[DamagedBytes]") -> None:
    for each in found:
        if each.first_offset == each.next_offset:
            # Something behind the last batch: no record is lost.
            continue
        log.directory.on_damage(
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
    with log.directory.guard:
        yield lambda: note_damaged_segments(log.filesystem, log.path, reasons)


def take_offline(log: "LogState", error: DamagedFileError) -> None:
    """From now on, and the next start looks at every batch."""
    digits = error.path.name[:20]
    base_offset = int(digits) if digits.isdecimal() else log.log_start_offset
    promised_end = max(log.high_watermark, log.flushed_offset)
    log.damage = Damage(Offset(base_offset), promised_end, Offset(base_offset), error.reason)
    log.directory.on_damage(
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
    with log.directory.guard:
        yield lambda: note_damage(log.filesystem, log.path, reason)


class LogGuard:
    """Around everything that touches the log's files."""

    __slots__ = ("_enter", "_exit", "_log")

    def __init__(self, log: "LogState", *, reads_only: bool = False) -> None:
        self._log = log
        guard = log.directory.read_guard if reads_only else log.directory.guard
        self._enter = guard.__enter__
        self._exit = guard.__exit__

    def __enter__(self) -> None:
        self._enter()
        damage = self._log.damage
        if self._log.is_abandoned:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log.topic_partition} is closed or deleted"
            )
        if damage is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self._log.topic_partition} is damaged from offset {damage.first_offset} "
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
        with log.directory.read_guard:
            if isinstance(error, CorruptSegmentError) and examine(log, error.path):
                return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
        take_offline(log, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
