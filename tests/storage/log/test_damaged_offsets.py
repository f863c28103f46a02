"""One bit of a batch's base offset is flipped, which no checksum covers. The order of the batches
and the range of their segment reveal it: it is damage like any other, and affects that batch alone.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from storage.log_maker import SMALL_SEGMENTS, OneLog, records_batch

from moldau.config.log import LogConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions
from moldau.protocol.records.batches import iterate_batches
from moldau.storage.disk.cached_reads import CachedReads, NotCachedError
from moldau.storage.disk.read_buffers import ReadBuffers
from moldau.storage.log.damage import scrub
from moldau.storage.log.log import Log
from moldau.storage.log.names import DAMAGE_FILE_NAME
from moldau.storage.log.read import Isolation, ReadResult
from moldau.storage.log.recovery import Checkpointed
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import Offset

if TYPE_CHECKING:
    from moldau.storage.disk.failures import DamageFound

COUNT = 60
VALUE = b"v" * 100
OFFSET_BITS = 64
ONE_BATCH, WHOLE_SEGMENT = 1, 1 << 20
ATTEMPTS_MAX = 20
ALL_FLUSHED = Checkpointed(recovery_point=COUNT, high_watermark=Offset(COUNT))

Read = Callable[[Log, int, int], ReadResult]


def read_waiting(log: Log, offset: int, max_bytes: int) -> ReadResult:
    return log.read(Offset(offset), max_bytes, isolation=Isolation.LOG_END)


def read_cold(log: Log, offset: int, max_bytes: int) -> ReadResult:
    """As a fetch that must not wait for the disk."""
    reads = CachedReads(ReadBuffers())
    reads.next_log(max_bytes)
    for _ in range(ATTEMPTS_MAX):
        try:
            found = log.find(Offset(offset), max_bytes, reads, isolation=Isolation.LOG_END)
            return log.take(found, reads)
        except NotCachedError as cold:
            log.adopt(cold.load())
    raise AssertionError("the read never completed")


class ThreeSegments:
    """A closed log with about twenty batches in each segment."""

    def __init__(self, place: int = 1) -> None:
        self.disk = SimulatedDisk()
        self.one = OneLog(Path("/data"), SMALL_SEGMENTS, filesystem=self.disk)
        self.one.fill(COUNT, value=VALUE)
        self.one.commit_all()
        segment = self.one.log.segments[place]
        assert len(self.one.log.segments) == 3
        self.path = segment.path()
        self.batches = list(segment.walk())
        self.reports: list[DamageFound] = []
        self.one.directory.on_damage = self.reports.append
        self.one.log.close()
        self.files = self.disk.files()

    def flip(self, which: int, bit: int) -> int:
        """Flips a bit in the base offset of a batch of the segment. Returns the original offset."""
        for path, content in self.files.items():
            self.disk.plant(Path(path), content)
        damaged = bytearray(self.files[str(self.path)])
        damaged[self.batches[which].position + bit // 8] ^= 1 << bit % 8
        self.disk.plant(self.path, bytes(damaged))
        return self.batches[which].base_offset

    def open(self, checkpointed: Checkpointed = ALL_FLUSHED, *, is_clean: bool) -> Log:
        self.one.log.abandon()
        self.reports.clear()
        self.disk.remove(self.one.file(DAMAGE_FILE_NAME))
        return self.one.open(checkpointed, is_clean=is_clean)


def served(log: Log, read: Read, max_bytes: int) -> list[int]:
    """The offsets that a reader that skips damage gets. All are those of their records."""
    found: list[int] = []
    offset = 0
    while offset < log.log_end_offset:
        try:
            result = read(log, offset, max_bytes)
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE, error  # noqa: PT017 - others are served
            offset += 1
            continue
        for batch in iterate_batches(result.records):
            for record in batch.records():
                assert record.value == VALUE + b"%d" % record.offset
                found.append(record.offset)
        assert result.next_offset > offset, "a reader would wait there forever"
        offset = result.next_offset
    return found


@pytest.mark.parametrize("max_bytes", [ONE_BATCH, WHOLE_SEGMENT])
@pytest.mark.parametrize("read", [read_waiting, read_cold])
@pytest.mark.parametrize("which", [0, 11, -2, -1])
def test_a_flipped_offset_affects_its_batch_alone(which: int, read: Read, max_bytes: int) -> None:
    log = ThreeSegments()
    for bit in range(OFFSET_BITS):
        lost = log.flip(which, bit)
        opened = log.open(is_clean=True)
        assert served(opened, read, max_bytes) == [n for n in range(COUNT) if n != lost], bit
        assert [(each.first_offset, each.next_offset) for each in log.reports] == [(lost, lost + 1)]


@pytest.mark.parametrize("which", [0, 11, -1])
def test_a_reader_that_begins_after_a_flipped_offset_is_served(which: int) -> None:
    """Also at the offset that the flipped header claims."""
    log = ThreeSegments()
    for bit in range(OFFSET_BITS):
        lost = log.flip(which, bit)
        for wanted in {lost ^ (1 << (56 - bit // 8 * 8 + bit % 8)), lost + 1} & {*range(COUNT)}:
            (record,) = next(
                iterate_batches(read_cold(log.open(is_clean=True), wanted, ONE_BATCH).records)
            ).records()
            assert (record.offset, record.value) == (wanted, VALUE + b"%d" % wanted)


@pytest.mark.parametrize(("place", "which"), [(1, 0), (1, 11), (1, -1), (2, 0), (2, 5), (2, -2)])
def test_a_recovery_cuts_no_promised_records(place: int, which: int) -> None:
    """Also where an offset is now beyond all promised offsets."""
    log = ThreeSegments(place)
    log.one.flush_policy = "group"
    for bit in range(OFFSET_BITS):
        lost = log.flip(which, bit)
        opened = log.open(Checkpointed(high_watermark=Offset(COUNT)), is_clean=False)
        assert opened.log_end_offset == COUNT, bit
        assert served(opened, read_waiting, ONE_BATCH) == [n for n in range(COUNT) if n != lost]
        assert [(each.first_offset, each.next_offset) for each in log.reports] == [(lost, lost + 1)]


@pytest.mark.parametrize("which", [0, 11, -1])
def test_a_scrub_finds_flipped_offsets(which: int) -> None:
    log = ThreeSegments()
    for bit in range(OFFSET_BITS):
        lost = log.flip(which, bit)
        with pytest.raises(KafkaError, match="offsets"):
            list(scrub(log.open(is_clean=True)))
        assert [each.first_offset for each in log.reports] == [lost]


def test_a_batch_inside_one_with_a_flipped_offset_is_not_served() -> None:
    """Records may contain anything, including batches."""
    one = OneLog(Path("/data"), LogConfig(), filesystem=SimulatedDisk())
    inner = records_batch([b"inner"], BatchOptions(base_offset=2))
    one.append(b"first")
    one.append(inner)
    one.append(b"last")
    segment = one.log.segments[0]
    batch = list(segment.walk())[1]
    content = bytearray(segment.file.read(0, segment.size))
    content[batch.position + 2] ^= 1
    assert isinstance(one.filesystem, SimulatedDisk)
    one.filesystem.plant(segment.path(), bytes(content))
    opened = one.reopen(is_clean=False, recovery_point=3)
    assert [(each.first_offset, each.next_offset) for _, each in opened.damaged] == [(1, 2)]
    (last,) = next(
        iterate_batches(opened.read(Offset(2), 1, isolation=Isolation.LOG_END).records)
    ).records()
    assert last.value == b"last"
