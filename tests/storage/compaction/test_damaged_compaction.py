"""Compaction of logs with damaged batches: those stay in place, and nothing else is affected."""

from pathlib import Path

import pytest
from storage.compaction_logs import DAY_MS, CompactedLog, Pair

from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.control_records import committed_batches
from moldau.storage.compaction.run import DamagedSourceError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.log.read import Isolation
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import Offset


def pairs(**table: str) -> list[Pair]:
    return [(key.encode(), value.encode()) for key, value in table.items()]


def damaged_in_the_middle(tmp_path: Path) -> CompactedLog:
    """The second of four segments has a damaged batch, and an aborted one whose marker is in the
    third segment.
    """
    log = CompactedLog(filesystem=DiskFileSystem(), root=tmp_path / "d")
    log.put(*pairs(a="1", b="1", lost="1"))
    log.roll()
    log.put(*pairs(a="2", aborted="2"), producer_id=7, transactional=True)
    log.put(*pairs(lost="2"))
    log.put(*pairs(b="2"))
    log.roll()
    log.end(7, commit=False)
    log.put(*pairs(a="3"))
    log.put(*pairs(c="3"))
    log.roll()
    log.put(*pairs(a="4", c="4"))
    log.roll()
    segment = log.log.segments[1]
    batch = list(segment.walk())[1]
    content = bytearray(segment.path().read_bytes())
    content[batch.position + 65] ^= 1
    segment.path().write_bytes(content)
    return log


def test_a_damaged_segment_stays_and_the_others_are_compacted(tmp_path: Path) -> None:
    log = damaged_in_the_middle(tmp_path)
    damaged = log.log.segments[1]
    before = damaged.path().read_bytes()
    size = log.log.segments.size_in_bytes
    with pytest.raises(DamagedSourceError):
        log.clean()
    # Twice: records that a pass may only remove after a delay are covered too.
    for after_ms in (0, 10 * DAY_MS):
        log.clean(after_ms=after_ms)
        assert damaged.path().read_bytes() == before
    assert damaged in log.log.segments
    assert log.log.segments.size_in_bytes < size
    ((_, lost),) = log.log.damaged
    found: dict[bytes, bytes | None] = {}
    offset = 0
    while offset < log.log.log_end_offset:
        if offset == lost.first_offset:
            offset = lost.next_offset
        result = log.log.read(Offset(offset), 1 << 20, isolation=Isolation.COMMITTED)
        aborted = [(each.producer_id, each.first_offset) for each in result.aborted or ()]
        for batch in committed_batches(iterate_batches(result.records), aborted):
            found |= {record.key or b"": record.value for record in batch.records()}
        offset = result.next_offset
    # The newer value in the damaged batch is unknown, so the older one is kept.
    assert found == {b"a": b"4", b"b": b"2", b"c": b"4", b"lost": b"1"}


def test_a_damaged_abort_marker_does_not_abort_a_later_transaction(tmp_path: Path) -> None:
    log = CompactedLog(filesystem=DiskFileSystem(), root=tmp_path / "d")
    log.put(*pairs(a="1"), producer_id=7, transactional=True)
    marker = log.end(7, commit=False)
    log.roll()
    log.put(*pairs(a="2"), producer_id=7, transactional=True)
    log.end(7, commit=True)
    log.roll()
    log.put(*pairs(z="3"))
    log.roll()
    segment = log.log.segments[0]
    batch = next(each for each in segment.walk() if each.base_offset == marker)
    content = bytearray(segment.path().read_bytes())
    content[batch.position + 65] ^= 1
    segment.path().write_bytes(content)
    with pytest.raises(DamagedSourceError):
        log.clean()
    log.clean()
    kept = log.log.read(Offset(2), 1 << 20).records
    records = [r for b in iterate_batches(kept) if not b.is_control for r in b.records()]
    assert records[0].value == b"2"


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_flipped_offset_is_damage_to_compaction(which: int) -> None:
    """Checksums do not cover offsets, and compaction would move a batch by a wrong one."""
    for bit in range(64):
        disk = SimulatedDisk()
        log = CompactedLog(filesystem=disk)
        for value in ("1", "2", "3"):
            log.put(*pairs(a=value))
        log.roll()
        log.put(*pairs(a="4"))
        log.roll()
        segment = log.log.segments[0]
        content = bytearray(segment.file.read(0, segment.size))
        content[list(segment.walk())[which].position + bit // 8] ^= 1 << bit % 8
        disk.plant(segment.path(), bytes(content))
        with pytest.raises(DamagedSourceError):
            log.clean()
        log.clean()
        assert disk.files()[str(segment.path())] == content, "the segment is unchanged"
        assert [each.first_offset for _, each in log.log.damaged] == [which]
        assert not log.cleaner.uncleanable
