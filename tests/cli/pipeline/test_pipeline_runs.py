"""A run observed from outside: its lines, its progress, its stops, and the next run."""

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from cli.command import COMMAND, moldau, moldau_here
from support.waiting import wait_for

from moldau import Admin, Consumer, Producer
from moldau.testing import ThreadBroker, broker

WAIT_S = 500.0
PIPELINE = """\
name: seen
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  numbers: {{topic: numbers, schema: n BIGINT, start: earliest, dead_letter: numbers.dlq}}
steps:
  copied: {{sql: SELECT n FROM numbers, into: {{topic: copied, key: n}}}}
  counted:
    sql: SELECT n % 2 AS rest, count(*) AS times FROM numbers GROUP BY n % 2
    mode: upsert
    into: {{topic: counted, key: rest}}
  lake: {{sql: SELECT n FROM numbers, into: {{table: lake}}}}
"""


class Watched:
    """A run with `--json`, whose lines are read as they arrive."""

    def __init__(self, path: Path, *options: str) -> None:
        command = [*COMMAND, "pipeline", "run", str(path), "--json", *options]
        self.process: Any = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.last: dict[str, dict[str, Any]] = {}
        self.errors = ""
        self._readers = [
            threading.Thread(target=self._take_lines),
            threading.Thread(target=self._take_errors),
        ]
        for one in self._readers:
            one.start()

    def _take_lines(self) -> None:
        for line in self.process.stdout:
            found = json.loads(line)
            self.last[found["query"]] = found

    def _take_errors(self) -> None:
        for line in self.process.stderr:
            self.errors += line

    def wait_for_rows(self, total: int) -> None:
        def seen() -> bool:
            found = [one["rows_total"] for one in self.last.values()]
            return found == [total, total] or self.process.poll() is not None

        wait_for(seen, f"{total} rows", WAIT_S)
        assert self.process.poll() is None, self.errors

    def ended(self) -> int:
        status: int = self.process.wait(WAIT_S)
        for one in self._readers:
            one.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


@contextmanager
def watched(path: Path, *options: str) -> Iterator[Watched]:
    run = Watched(path, *options)
    try:
        yield run
    finally:
        run.process.kill()
        run.ended()


def send(node: ThreadBroker, *values: bytes) -> None:
    with Producer(node.bootstrap) as producer:
        for value in values:
            producer.send("numbers", value)


def committed_values(node: ThreadBroker, topic: str) -> list[Any]:
    found = []
    with Consumer(
        node.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        places = consumer.partitions_for(topic)
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            found += [json.loads(record.value or b"null") for record in consumer.poll()]
    return found


def numbers(start: int, stop: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in range(start, stop)]


@pytest.mark.spark
def test_a_run_is_watched_stopped_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "seen.yaml"
    with broker() as node:
        assert isinstance(node, ThreadBroker)
        path.write_text(PIPELINE.format(bootstrap=node.bootstrap))
        with Admin(node.bootstrap) as admin:
            admin.create_topics(["numbers"])
        send(node, *numbers(0, 10), b"broken")

        with watched(path, "--metrics-port", "0") as run:
            run.wait_for_rows(11)
            address = re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", run.errors)
            assert address is not None, run.errors
            with urlopen(address[1]) as answer:
                metrics = answer.read().decode()
            told = moldau_here("pipeline", "status", path)
            run.process.send_signal(signal.SIGINT)
            assert run.ended() == 0, run.errors
        sizes = sum(len(value) for value in [*numbers(0, 10), b"broken"])
        assert run.last["numbers"]["bytes_total"] == run.last["counted"]["bytes_total"] == sizes
        assert run.last["numbers"]["dead_letters_total"] == 1
        assert {one["state"] for one in run.last.values()} == {"stopped"}
        for name, value in {
            "rows_total": 11, "bytes_total": sizes, "dead_letters_total": 1, "errors_total": 0,
            "lag": 0, "running": 1,
        }.items():  # fmt: skip
            line = f'moldau_pipeline_{name}{{pipeline="seen",query="numbers"}} {float(value)}'
            assert line in metrics
        assert 'moldau_pipeline_batch_duration_seconds{pipeline="seen",query="counted"}' in metrics
        assert re.search(r"seen is running, process \d+", told.output)
        assert "Traceback" not in run.errors

        after = json.loads(moldau_here("pipeline", "status", path, "--json").output)
        assert (after["running"], after["error"], after["name"]) == (False, None, "seen")
        send(node, *numbers(10, 12))
        once = moldau("pipeline", "run", path, "--once")
        assert once.status == 0, once.errors
        assert re.search(
            r"numbers (running|stopped): batch 1, 2 rows, \d+ rows/s, \d+ B/s, \d+ ms, lag 0\n",
            once.output,
        )
        assert sorted(row["n"] for row in committed_values(node, "copied")) == list(range(12))
        counts = {row["rest"]: row["times"] for row in committed_values(node, "counted")}
        assert counts == {0: 6, 1: 6}

        replayed = moldau(
            "pipeline", "replay", path, "--from", "2020-01-01", "--to", "2100-01-01",
            "--into", ".again",
        )  # fmt: skip
        assert replayed.status == 0, replayed.errors
        rows = dict(re.findall(r"(\S+\.again) +(\d+)", replayed.output))
        assert rows == {"copied.again": "12", "counted.again": "2", f"{tmp_path}/lake.again": "12"}
        assert len(committed_values(node, "copied.again")) == 12
    state = tmp_path / ".moldau" / "seen"
    assert state.is_dir()
    reset = moldau_here("pipeline", "reset", path, "--yes").output
    assert reset == "seen is reset; the next run starts where its sources say\n"
    assert not state.exists()
