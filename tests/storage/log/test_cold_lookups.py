"""Reads and lookups whose files are not in memory: the log names what a thread must load, and finds
the same as when it may wait for the disk.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from storage.log_maker import SMALL_SEGMENTS, OneLog

from moldau.protocol.enums import ListOffsetsTimestamp
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.records.compression import Compression
from moldau.storage.disk.cached_reads import CachedReads, NotCachedError
from moldau.storage.disk.read_buffers import ReadBuffers
from moldau.storage.log.log import Log
from moldau.storage.log.read import BatchOfTime, Isolation
from moldau.types import LeaderEpoch, Offset

FoundT = TypeVar("FoundT")
MAX_BYTES = 1 << 20


class Threads:
    """Loads what is missing, as a broker's threads do."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.loaded: list[str] = []
        """Suffixes of the loaded files."""
        self.reads = CachedReads(ReadBuffers())
        self.reads.next_log(MAX_BYTES)

    def run(self, attempt: Callable[[CachedReads], FoundT]) -> FoundT:
        for _ in range(200):
            try:
                return attempt(self.reads)
            except NotCachedError as cold:
                self.loaded.append(str(cold).partition(":")[0].rpartition(".")[2])
                self.log.adopt(cold.load())
        raise AssertionError("it never has enough")

    def batch_of_time(self, timestamp_ms: int) -> BatchOfTime | None:
        start = self.log.log_start_offset
        return self.run(lambda reads: self.log.batch_of_time(timestamp_ms, start, reads))

    def aborted(self, offset: int) -> list[tuple[int, int]]:
        def attempt(reads: CachedReads) -> list[tuple[int, int]]:
            found = self.log.find(Offset(offset), MAX_BYTES, reads, isolation=Isolation.COMMITTED)
            result = self.log.take(found, reads)
            return [(each.producer_id, each.first_offset) for each in result.aborted or ()]

        return self.run(attempt)


@pytest.fixture
def one(tmp_path: Path) -> OneLog:
    """Several segments, opened again: nothing of them is in memory."""
    made = OneLog(tmp_path, SMALL_SEGMENTS)
    for number in range(60):
        made.append(b"a%03d" % number, b"b" * 30, b"c" * 30, timestamp_ms=10_000 + 10 * number)
    made.commit_all()
    made.reopen(is_clean=True, recovery_point=180, high_watermark=180)
    return made


# Times


@pytest.mark.parametrize("timestamp_ms", [1, 10_000, 10_001, 10_305, 10_592])
def test_a_time_is_found_once_threads_have_loaded_the_indexes(
    one: OneLog, timestamp_ms: int
) -> None:
    threads = Threads(one.log)
    batch = threads.batch_of_time(timestamp_ms)
    assert batch is not None
    assert batch.find() == one.log.offset_for_timestamp(timestamp_ms)
    assert "timeindex" in threads.loaded


def test_there_is_no_batch_after_the_last_time(one: OneLog) -> None:
    assert Threads(one.log).batch_of_time(10_593) is None
    assert one.log.offset_for_timestamp(10_593) is None


def test_the_largest_time_is_found(one: OneLog) -> None:
    batch = Threads(one.log).batch_of_time(ListOffsetsTimestamp.MAX_TIMESTAMP)
    assert batch is not None
    found = batch.find()
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (10_592, 179)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_broken_indexes_are_rebuilt_from_what_a_thread_examined(one: OneLog, suffix: str) -> None:
    expected = one.log.offset_for_timestamp(10_305)
    one.log.close()
    for path in one.path.rglob(f"*.{suffix}"):
        path.write_bytes(b"\xff" * (len(path.read_bytes()) or 12))
    one.reopen(is_clean=False, recovery_point=180, high_watermark=180)
    threads = Threads(one.log)
    batch = threads.batch_of_time(10_305)
    assert batch is not None
    assert batch.find() == expected
    assert one.log.offset_for_timestamp(10_305) == expected


def test_a_header_may_claim_a_time_that_no_record_has(tmp_path: Path) -> None:
    """A client's batch whose largest timestamp is not that of a record: the search continues."""
    one = OneLog(tmp_path)
    one.append(b"early", timestamp_ms=1_000)
    start = one.log.log_end_offset
    one.append(b"late", timestamp_ms=9_000)
    found = one.log.batch_of_time(5_000, Offset(0), CachedReads(ReadBuffers()))
    assert found is not None
    assert found.find() is not None
    # The same batch, asked for a record that it does not have.
    assert found._replace(timestamp_min=9_001).find() is None
    expected = one.log.offset_for_timestamp(5_000)
    assert expected is not None
    assert expected.offset == start


def test_only_large_batches_are_searched_elsewhere(tmp_path: Path) -> None:
    one = OneLog(tmp_path)

    def appended(count: int, codec: Compression = Compression.NONE) -> BatchOfTime:
        time_ms = one.log.log_end_offset + 1
        records = [Record(n, time_ms + n, None, b"%d" % hash(str(n))) for n in range(count)]
        batch = build_batch(records, BatchOptions(base_offset=0, compression=codec))
        one.log.append_as_leader(batch, LeaderEpoch(0), 1_000)
        found = one.log.batch_of_time(time_ms, Offset(0), CachedReads(ReadBuffers()))
        assert found is not None
        return found

    assert not appended(3).is_heavy
    assert not appended(3, Compression.GZIP).is_heavy
    for large in (appended(20_001), appended(20_000, Compression.GZIP)):
        assert large.is_heavy
        assert large.detached().find() == large.find()


# Transactions


def forget_aborts(log: Log) -> None:
    """As for segments that a start trusts without reading their indexes."""
    for segment in log.segments:
        segment.transaction_index.close()


def test_aborted_transactions_are_found_once_threads_have_loaded_their_index(
    tmp_path: Path,
) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    for number in range(40):
        one.append_transactional(7, number, b"v" * 100)
        one.end_transaction(7, abort=number % 2 == 0)
    one.commit_all()
    result = one.log.read(Offset(0), MAX_BYTES, isolation=Isolation.COMMITTED)
    expected = [(each.producer_id, each.first_offset) for each in result.aborted or ()]
    assert len(expected) > 3
    forget_aborts(one.log)
    threads = Threads(one.log)
    assert threads.aborted(0) == expected
    assert "txnindex" in threads.loaded


def test_a_broken_index_of_aborts_is_an_error_at_its_first_use(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    one.append_transactional(7, 0, b"v")
    one.end_transaction(7, abort=True)
    one.commit_all()
    forget_aborts(one.log)
    (index,) = one.path.rglob("*.txnindex")
    index.write_bytes(index.read_bytes()[:-1])
    with pytest.raises(KafkaError) as raised:
        Threads(one.log).aborted(0)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert one.log.damage is not None
    assert one.directory.is_online, "only this log is offline"


# Damage


def test_damage_is_found_by_a_thread_and_what_is_sound_is_read(one: OneLog) -> None:
    segment = one.log.segments[0]
    path = segment.path()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    one.reopen(is_clean=True, recovery_point=180, high_watermark=180)
    threads = Threads(one.log)
    sound: set[int] = set()
    for offset in range(180):

        def attempt(reads: CachedReads, offset: int = offset) -> int:
            found = one.log.find(Offset(offset), 1, reads, isolation=Isolation.LOG_END)
            return len(one.log.take(found, reads).records)

        with contextlib.suppress(KafkaError):
            assert threads.run(attempt) > 0
            sound.add(offset)
    assert 180 - len(sound) == 3, "one batch of three records is damaged"
    assert one.directory.is_online
