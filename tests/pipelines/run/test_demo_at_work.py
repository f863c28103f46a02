"""`moldau demo` as a whole: after interrupts, kills and restarts each order is stored once."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest
from support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT_S = 500.0
LAST_LINE = re.compile(
    r"stopped; (\d+) orders published = (\d+) in the table, each once \+ (\d+) dead letters"
    r"(?: \+ (\d+) left for the next run)?\n"
)
BROKEN_EVERY = 50


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "moldau", "demo", "--port", "0", "--dir", "demo"]
    command += ["--rate", "50", *options]
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, text=True, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        # Its child processes end with it.
        process.kill()
        process.wait()


def output_of(folder: Path) -> str:
    return (folder / "output").read_text()


def has_written(folder: Path, more_than: int) -> bool:
    counts = re.findall(r"in the table (\d+);", output_of(folder))
    return bool(counts) and int(counts[-1]) > more_than


def table_ids(folder: Path) -> list[int]:
    found = ds.dataset(folder / "demo" / "lake" / "orders", partitioning="hive")
    return sorted(found.to_table(columns=["id"])["id"].to_pylist())


def test_an_interrupted_or_killed_demo_resumes_and_loses_nothing(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        wait_for(lambda: has_written(tmp_path, 0) or running.poll() is not None, "orders", WAIT_S)
        assert running.poll() is None, output_of(tmp_path)
        helpers = psutil.Process(running.pid).children(recursive=True)
        assert any("java" in one.name() for one in helpers)
        running.send_signal(signal.SIGINT)
        assert running.wait(WAIT_S) == 0, output_of(tmp_path)
    assert psutil.wait_procs(helpers, WAIT_S)[1] == []
    assert "Traceback" not in output_of(tmp_path)
    told = LAST_LINE.search(output_of(tmp_path))
    assert told is not None, output_of(tmp_path)
    published, in_table, dead, rest = (int(one or 0) for one in told.groups())
    assert published == in_table + dead + rest
    assert in_table == len(table_ids(tmp_path))

    with demo(tmp_path) as running:
        wait_for(lambda: has_written(tmp_path, in_table) or running.poll() is not None, "", WAIT_S)
        assert running.poll() is None, output_of(tmp_path)
        helpers = psutil.Process(running.pid).children(recursive=True)
        running.kill()
        running.wait()
        # None of its child processes is left, although it could not stop them.
        assert psutil.wait_procs(helpers, WAIT_S)[1] == []

    with demo(tmp_path, "--orders", "300") as running:
        assert running.wait(WAIT_S) == 0, output_of(tmp_path)
    told = LAST_LINE.search(output_of(tmp_path))
    assert told is not None, output_of(tmp_path)
    total, in_table, dead, rest = (int(one or 0) for one in told.groups())
    assert (rest, total) == (0, in_table + dead)
    assert total > published + 300
    ids = table_ids(tmp_path)
    assert len(ids) == len(set(ids)) == in_table
    # Numbers follow from offsets, so no number of a partition may be missing except malformed
    # orders.
    for partition in (0, 1):
        own = [one for one in ids if one % 2 == partition]
        every = range(partition, own[-1] + 1, 2)
        assert own == [one for one in every if one % BROKEN_EVERY != BROKEN_EVERY - 1]
