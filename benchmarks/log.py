"""How fast is the log on disk: appending, reading, recovering, opening a thousand of them?

    python benchmarks/log.py [append read recovery open]

The ceiling of each row is the same bytes through bare system calls in the same run, with no log
around them: pwritev (and fdatasync as often as the policy) for appending, pread
for reading, CRC-32C over the file for recovery, open+pread+close of one file per log for opening.
Appends are those of a leader for a producer's batch of 1 KB records: checksum, record walk,
offsets, write, indexes. `group` syncs every 16 appends, as a flush round under load would. Times
are the best of several rounds, since the machine may be shared.
"""

import argparse
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from crc32c import crc32c
from kept_results import keep

from moldau.config.log import FLUSH_POLICIES, LogConfig
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record
from moldau.storage.directory.directory import LogDirectory, format_directory
from moldau.storage.directory.logs import Logs
from moldau.storage.directory.meta_properties import MetaProperties
from moldau.storage.disk.cached_reads import CachedReads
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.disk.read_buffers import ReadBuffers
from moldau.storage.log.flushing import GroupFlusher
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.recovery import Checkpointed, LogLocation, open_log
from moldau.types import BrokerId, LeaderEpoch, Offset, TopicPartition, Uuid

NOW_MS = 1_700_000_000_000
NAME = TopicPartition("bench", 0)
META = MetaProperties(cluster_id="bench", node_id=BrokerId(1), directory_id=Uuid(bytes(range(16))))
KIB = 1024
MEGABYTE = 1_000_000
BATCH_BYTES = (4 * KIB, 64 * KIB, 1000 * KIB)
GROUP_APPENDS = 16
ROUNDS = 5


@dataclass(frozen=True)
class Row:
    question: str
    case: str
    measured: float
    ceiling: float
    unit: str

    @property
    def ratio(self) -> float:
        return self.measured / self.ceiling


def a_batch(size: int) -> bytes:
    count = size // KIB
    return build_batch([Record(i, NOW_MS + i, b"%08d" % i, b"v" * 1000) for i in range(count)])


@contextmanager
def scratch(under: Path | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="moldau-bench-", dir=under))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def open_directory(path: Path) -> LogDirectory:
    disk = DiskFileSystem()
    format_directory(disk, path, META)
    return LogDirectory.open(disk, path, cluster_id="bench", node_id=BrokerId(1))


def open_one(path: Path, policy: str, flusher: GroupFlusher, checkpointed: Checkpointed) -> Log:
    directory = open_directory(path)
    place = LogLocation(directory=directory, path=path / "bench-0", topic_partition=NAME)
    options = LogOptions(config=LogConfig(), flush_policy=policy, flusher=flusher)
    return open_log(place, options, checkpointed, is_clean=False, now_ms=NOW_MS)


def best(rounds: int, run: Callable[[], None]) -> float:
    times = []
    for _ in range(rounds):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return min(times)


# Appending


def append_rows(under: Path | None) -> Iterator[Row]:
    for policy in FLUSH_POLICIES:
        for size in BATCH_BYTES:
            total = 64 << 20 if policy == "os" else 16 << 20
            if policy == "strict" and size < 64 * KIB:
                total = 2 << 20
            yield append_row(under, policy, size, total)


def append_row(under: Path | None, policy: str, size: int, total: int) -> Row:
    batch = a_batch(size)
    count = max(total // len(batch), 8)
    buffers = [memoryview(bytearray(batch)) for _ in range(min(count, 256))]
    with scratch(under) as path:
        flusher = GroupFlusher()
        log = open_one(path, policy, flusher, Checkpointed())
        raw = os.open(path / "raw", os.O_RDWR | os.O_CREAT)
        position = 0

        def through_the_log() -> None:
            for number in range(count):
                buffer = buffers[number % len(buffers)]
                buffer[:8] = bytes(8)
                log.append_as_leader(buffer, LeaderEpoch(0), NOW_MS)
                if policy == "group" and number % GROUP_APPENDS == 0:
                    flusher.run_round()

        def through_system_calls() -> None:
            nonlocal position
            for number in range(count):
                position += os.pwritev(raw, [buffers[number % len(buffers)]], position)
                if policy == "strict" or (policy == "group" and number % GROUP_APPENDS == 0):
                    os.fdatasync(raw)

        ours = best(ROUNDS, through_the_log)
        bare = best(ROUNDS, through_system_calls)
        os.close(raw)
        log.abandon()
        log.directory.close()
    megabytes = count * len(batch) / MEGABYTE
    case = f"{policy}, {size // KIB} KiB batches"
    return Row("append", case, megabytes / ours, megabytes / bare, "MB/s")


# Reading


def filled(path: Path, size: int, total: int) -> Log:
    log = open_one(path, "os", GroupFlusher(), Checkpointed())
    batch = a_batch(size)
    for _ in range(total // len(batch)):
        log.append_as_leader(batch, LeaderEpoch(0), NOW_MS)
    log.raise_high_watermark(log.log_end_offset)
    return log


def read_rows(under: Path | None) -> Iterator[Row]:
    for sealed in (False, True):
        for size in (4 * KIB, 64 * KIB):
            with scratch(under) as path:
                log = filled(path, size, 128 << 20)
                if sealed:
                    log.roll(NOW_MS)
                yield read_row(log, size, sealed=sealed)
                log.abandon()
                log.directory.close()


def read_row(log: Log, size: int, *, sealed: bool) -> Row:
    """Fetches of 1 MiB."""
    step = 1 << 20
    total = log.segments[0].size
    buffers = ReadBuffers()

    def through_the_log() -> None:
        offset = 0
        while offset < log.high_watermark:
            reads = CachedReads(buffers)
            reads.next_log(step)
            result = log.take(log.find(Offset(offset), step, reads), reads)
            offset = result.next_offset

    def through_system_calls() -> None:
        fd = os.open(log.segments[0].path(), os.O_RDONLY)
        for start in range(0, total, step):
            os.pread(fd, step, start)
        os.close(fd)

    ours, bare = best(ROUNDS, through_the_log), best(ROUNDS, through_system_calls)
    case = f"{'sealed' if sealed else 'active'}, {size // KIB} KiB batches"
    return Row("read", case, total / MEGABYTE / ours, total / MEGABYTE / bare, "MB/s")


# Recovering


def recovery_rows(under: Path | None) -> Iterator[Row]:
    for size in (4 * KIB, 64 * KIB):
        with scratch(under) as path:
            log = filled(path, size, 256 << 20)
            total = log.segments.size_in_bytes / MEGABYTE
            file = log.segments[0].path()
            log.abandon()
            log.directory.close()
            ours = best(3, lambda path=path: recover(path))  # type: ignore[misc]
            bare = best(3, lambda file=file: checksum_only(file))  # type: ignore[misc]
        yield Row("recovery", f"{size // KIB} KiB batches", total / ours, total / bare, "MB/s")


def recover(path: Path) -> None:
    log = open_one(path, "os", GroupFlusher(), Checkpointed())
    log.abandon()
    log.directory.close()


def checksum_only(path: Path) -> None:
    with (
        path.open("rb") as source,
        mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ) as mapped,
    ):
        crc32c(mapped)


# Opening


def open_rows(under: Path | None) -> Iterator[Row]:
    logs_count = 1000
    with scratch(under) as path:
        options = LogOptions(config=LogConfig())
        logs = Logs(open_directory(path), lambda _: options)
        batch = a_batch(4 * KIB)
        for number in range(logs_count):
            log = logs.create(TopicPartition("bench", number), Uuid(bytes(15) + b"\1"), NOW_MS)
            log.append_as_leader(batch, LeaderEpoch(0), NOW_MS)
        logs.stop()
        files = [path / f"bench-{number}" / f"{0:020d}.log" for number in range(logs_count)]

        def open_all() -> None:
            again = Logs(open_directory(path), lambda _: options)
            again.load(NOW_MS)
            assert len(again.by_partition) == logs_count
            for log in again.by_partition.values():
                log.abandon()
            # Without touching the disk: the next round finds a clean stop again.
            again.directory.mark_clean_stop()
            again.directory.close()

        def touch_all() -> None:
            for file in files:
                fd = os.open(file, os.O_RDWR)
                os.pread(fd, 4096, 0)
                os.close(fd)

        ours, bare = best(3, open_all), best(3, touch_all)
    yield Row(
        "open", "1,000 logs after a clean stop", logs_count / ours, logs_count / bare, "logs/s"
    )


QUESTIONS: dict[str, Callable[[Path | None], Iterator[Row]]] = {
    "append": append_rows,
    "read": read_rows,
    "recovery": recovery_rows,
    "open": open_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("questions", nargs="*", metavar="question", default=list(QUESTIONS))
    parser.add_argument("--under", type=Path, help="where the logs are made (default: temporary)")
    arguments = parser.parse_args()
    rows: list[Row] = []
    print(f"{'question':<10}{'case':<34}{'measured':>10}{'ceiling':>10}{'ratio':>7}")
    for question in arguments.questions:
        for row in QUESTIONS[question](arguments.under):
            rows.append(row)
            print(
                f"{row.question:<10}{row.case:<34}{row.measured:>10,.0f}{row.ceiling:>10,.0f}"
                f"{row.ratio:>7.2f} {row.unit}"
            )
    if set(arguments.questions) == set(QUESTIONS):
        keep("log", rows=[asdict(row) | {"ratio": round(row.ratio, 3)} for row in rows])


if __name__ == "__main__":
    main()
