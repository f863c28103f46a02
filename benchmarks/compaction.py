"""How fast is a log compacted?

    python benchmarks/compaction.py

MB/s of log that enters a pass, including both reads of it and all syncs: learning the keys and
writing the kept records; by the clock, and by processor time, which other programs do not disturb.
Values have 100 bytes and compress to about a half. For scale, the same bytes are copied and synced
in the same run (`copy`), and the first case also runs on the Python twins, on a fraction of the
log.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time

from kept_results import keep

from moldau.compiled import USE_COMPILED
from moldau.config.cleaner import CleanerConfig
from moldau.config.log import LogConfig
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.records.compression import Compression
from moldau.storage.compaction.cleaner import LogCleaner
from moldau.storage.directory.directory import LogDirectory, format_directory
from moldau.storage.directory.meta_properties import MetaProperties
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.recovery import Checkpointed, LogLocation, open_log
from moldau.types import BrokerId, LeaderEpoch, TopicPartition, Uuid

NOW_MS = 1_700_000_000_000
NAME = TopicPartition("t", 0)
MEGABYTE = 1_000_000
SEGMENT_BYTES = 32 << 20


@dataclass(frozen=True)
class Case:
    name: str
    log_bytes: int
    records_per_batch: int
    kept_share: float
    codec: Compression = Compression.NONE


@dataclass(frozen=True)
class Row:
    case: str
    log_mb: float
    kept_mb: float
    mb_per_second: float
    mb_per_cpu_second: float
    records_per_cpu_second: float
    copy_mb_per_second: float

    @property
    def of_copy(self) -> float:
        return self.mb_per_second / self.copy_mb_per_second


def cases(log_bytes: int) -> list[Case]:
    small = log_bytes // 4
    return [
        Case("16 KiB batches, 10 % stay", log_bytes, 130, 0.1),
        Case("16 KiB batches, 50 % stay", log_bytes, 130, 0.5),
        Case("16 KiB batches, all stay", log_bytes, 130, 1.0),
        Case("4 KiB batches, 10 % stay", log_bytes, 32, 0.1),
        Case("256 KiB batches, 10 % stay", log_bytes, 2000, 0.1),
        Case("one record each, 10 % stay", small, 1, 0.1),
        *(
            Case(f"16 KiB {codec.name.lower()}, 10 % stay", small, 130, 0.1, codec)
            for codec in list(Compression)[1:]
        ),
    ]


def open_empty(path: Path) -> Log:
    filesystem = DiskFileSystem()
    meta = MetaProperties(cluster_id="c", node_id=BrokerId(1), directory_id=Uuid(bytes(16)))
    format_directory(filesystem, path, meta)
    directory = LogDirectory.open(filesystem, path, cluster_id="c", node_id=BrokerId(1))
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES)
    place = LogLocation(directory=directory, path=path / str(NAME), topic_partition=NAME)
    return open_log(place, LogOptions(config=config), Checkpointed(), is_clean=True, now_ms=NOW_MS)


def batches(case: Case) -> Iterator[bytearray]:
    """Keys in random order, each `1 / kept_share` times."""
    rng = random.Random(5)
    record_bytes = 125
    records_max = case.log_bytes // record_bytes
    unique = max(int(records_max * case.kept_share), 1)
    values = [rng.randbytes(50).hex().encode() for _ in range(1000)]
    order = list(range(records_max)) if case.kept_share >= 1 else None
    number = 0
    while number + case.records_per_batch <= records_max:
        keys = [
            order[number + i] if order else rng.randrange(unique)
            for i in range(case.records_per_batch)
        ]
        records = [
            Record(i, NOW_MS, b"key-%09d" % key, values[(number + i) % len(values)])
            for i, key in enumerate(keys)
        ]
        number += case.records_per_batch
        yield bytearray(build_batch(records, BatchOptions(compression=case.codec)))


def fill(log: Log, case: Case) -> None:
    for batch in batches(case):
        log.append_as_leader(batch, LeaderEpoch(0), NOW_MS)
    log.raise_high_watermark(log.log_end_offset)
    log.roll(NOW_MS)
    log.flush()


def copy_speed(log: Log, target: Path) -> float:
    """The speed of this disk and machine for a program that only copies and syncs."""
    paths = [segment.path() for segment in log.segments]
    total = sum(path.stat().st_size for path in paths)
    start = perf_counter()
    for path in paths:
        copied = target / path.name
        shutil.copyfile(path, copied)
        with copied.open("rb+") as file:
            os.fsync(file.fileno())
    seconds = perf_counter() - start
    for path in paths:
        (target / path.name).unlink()
    return total / MEGABYTE / seconds


def measure(case: Case, folder: Path) -> Row:
    path = folder / "log"
    log = open_empty(path)
    fill(log, case)
    copy = copy_speed(log, folder)
    cleaner = LogCleaner(log.directory, CleanerConfig(), os.urandom(16))
    start, cpu_start = perf_counter(), process_time()
    compaction = cleaner.compact(log, NOW_MS)
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    assert cleaner.clean_offset(NAME) == log.log_end_offset, "one pass must do"
    counts = compaction.counts
    log.close()
    log.directory.close()
    shutil.rmtree(path)
    return Row(
        case=case.name,
        log_mb=counts.bytes_read / MEGABYTE,
        kept_mb=counts.bytes_kept / MEGABYTE,
        mb_per_second=counts.bytes_read / MEGABYTE / seconds,
        mb_per_cpu_second=counts.bytes_read / MEGABYTE / cpu_seconds,
        records_per_cpu_second=counts.records_read / cpu_seconds,
        copy_mb_per_second=copy,
    )


def twin_row(log_bytes: int) -> Row:
    """The first case in a process that uses the Python twins."""
    command = [sys.executable, __file__, "--only-first", "--megabytes", str(log_bytes // MEGABYTE)]
    environment = {**os.environ, "MOLDAU_PURE_PYTHON": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    row = Row(**json.loads(done.stdout))
    return Row(**{**asdict(row), "case": f"{row.case}, Python twins"})


def show(rows: list[Row]) -> None:
    titles = ("log MB", "kept MB", "MB/s", "MB/cpu s", "Mrec/cpu s", "of copy")
    print(f"{'case':42}" + "".join(f"{title:>11}" for title in titles))
    for row in rows:
        numbers = (row.log_mb, row.kept_mb, row.mb_per_second, row.mb_per_cpu_second)
        print(
            f"{row.case:42}"
            + "".join(f"{number:11.1f}" for number in numbers)
            + f"{row.records_per_cpu_second / 1e6:11.2f}{row.of_copy:11.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=128, help="size of the log")
    parser.add_argument("--only-first", action="store_true", help="print the first row as JSON")
    arguments = parser.parse_args()
    log_bytes = arguments.megabytes * MEGABYTE
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only_first:
            print(json.dumps(asdict(measure(cases(log_bytes)[0], Path(folder)))))
            return
        rows = [measure(case, Path(folder)) for case in cases(log_bytes)]
    if USE_COMPILED:
        rows.append(twin_row(max(log_bytes // 16, MEGABYTE)))
    show(rows)
    keep(
        "compaction",
        aim="50 MB/s with 100-byte records, uncompressed",
        rows=[{**asdict(row), "of_copy": row.of_copy} for row in rows],
    )


if __name__ == "__main__":
    main()
