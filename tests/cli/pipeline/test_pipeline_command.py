"""`moldau pipeline` as users type it; tests that need Spark are marked."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli.command import COMMAND, moldau, moldau_here
from support.waiting import wait_for

from moldau import Admin, Producer
from moldau.testing import broker

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", ["begin.yaml", "begin.py"])
def test_a_generated_pipeline_is_valid(tmp_path: Path, name: str) -> None:
    import moldau.pipelines as mp

    assert moldau_here("pipeline", "init", tmp_path / name).status == 0
    found = mp.load(tmp_path / name)
    assert (found.name, list(found.flows), len(found.examples)) == ("begin", ["big", "per_user"], 1)
    again = moldau_here("pipeline", "init", tmp_path / name)
    assert (again.status, again.errors) == (
        1,
        f"moldau: {tmp_path / name} already exists; choose another name\n",
    )


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.*")), ids=lambda path: path.name)
def test_the_examples_are_pipelines(path: Path) -> None:
    import moldau.pipelines as mp

    assert mp.load(path).examples


def test_the_examples_in_both_languages_are_the_same() -> None:
    import moldau.pipelines as mp

    python, yaml = mp.load(EXAMPLES / "orders.py"), mp.load(EXAMPLES / "orders.yaml")
    assert {name: (one.inputs, one.mode) for name, one in python.flows.items()} == {
        name: (one.inputs, one.mode) for name, one in yaml.flows.items()
    }


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("name: a\nsourcs: {}\n")
    for command in ("check", "test", "run", "status", "stop", "reset", "replay"):
        done = moldau_here("pipeline", command, path)
        assert done.status == 1
        told = "a pipeline has no 'sourcs'; did you mean sources?"
        assert done.errors == f"moldau: {path}:2:1: {told}\n"


def test_a_pipeline_that_never_ran(tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    moldau_here("pipeline", "init", path)
    assert moldau_here("pipeline", "status", path).output == "new has never run\n"
    assert moldau_here("pipeline", "stop", path).errors == "moldau: new is not running\n"
    assert "new has no state at" in moldau_here("pipeline", "reset", path, "--yes").errors


def test_an_unreachable_broker_is_reported_before_spark_starts(tmp_path: Path) -> None:
    path = tmp_path / "alone.yaml"
    moldau_here("pipeline", "init", path)
    content = path.read_text().replace(
        '"127.0.0.1:9092"', '"127.0.0.1:1", default.api.timeout.ms: 200, request.timeout.ms: 100'
    )
    path.write_text(content)
    done = moldau_here("pipeline", "run", path)
    assert done.status == 1
    assert len(done.errors.splitlines()) == 2
    assert "127.0.0.1:1" in done.errors


def test_the_origin_of_the_brokers_address_is_shown(tmp_path: Path) -> None:
    """The command line comes before the file, the file before the environment."""
    path = tmp_path / "alone.yaml"
    moldau_here("pipeline", "init", path)
    quick = "default.api.timeout.ms: 200, request.timeout.ms: 100"
    named = path.read_text().replace('"127.0.0.1:9092"', f'"127.0.0.1:1", {quick}')
    unnamed = re.sub(r"settings: .*", f"settings: {{{quick}}}", named)
    assert "bootstrap" not in unnamed

    def origin(content: str, *options: str) -> str:
        path.write_text(content)
        done = moldau_here("pipeline", "run", path, *options, MOLDAU_BOOTSTRAP="127.0.0.1:2")
        assert done.status == 1
        first, last = done.errors.splitlines()
        address = re.search(r"cannot reach (\S+): ", last)
        assert address is not None
        found = last.rpartition("the address is from ")[2]
        assert first == f"brokers {address[1]}, from {found}"
        return f"{address[1]} {found}"

    assert origin(named, "-b", "127.0.0.1:3") == "127.0.0.1:3 --bootstrap"
    assert origin(named) == f"127.0.0.1:1 {path}:8:31"
    assert origin(unnamed) == "127.0.0.1:2 MOLDAU_BOOTSTRAP"


def test_a_missing_source_topic_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lost.yaml"
    moldau_here("pipeline", "init", path)
    with broker() as node:
        done = moldau_here("pipeline", "run", path, "-b", node.bootstrap)
    assert done.errors == (
        f"brokers {node.bootstrap}, from --bootstrap\n"
        f"moldau: {path}:11:5: topic 'orders' does not exist; create it first\n"
    )


@pytest.mark.spark
def test_a_run_is_watched_and_stopped_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "live.yaml"
    moldau_here("pipeline", "init", path)
    with broker() as node:
        with Admin(node.bootstrap) as admin:
            admin.create_topics(["orders"])
        with Producer(node.bootstrap) as producer:
            producer.send("orders", b'{"id": 1, "user": "a", "amount": 500}')
        command = [*COMMAND, "pipeline", "run", str(path), "-b", node.bootstrap]
        running: Any = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            wait_for(lambda: has_written(path) or running.poll() is not None, "a batch", 400)
            told = moldau_here("pipeline", "status", path).output
            second = moldau("pipeline", "run", path, "-b", node.bootstrap)
            assert moldau_here("pipeline", "stop", path).status == 0
            output, errors = running.communicate(timeout=400)
        finally:
            running.kill()
            running.communicate()
    assert running.returncode == 0, errors[-2000:]
    assert re.search(r"live is running, process \d+", told)
    assert re.search(
        r"orders running: batch 0, 1 row, \d+ rows/s, [0-9.]+ K?i?B/s, \d+ ms, lag 0", output
    )
    assert output.endswith("stopped; the next run resumes from here\n")
    assert second.status == 1
    assert "the pipeline is already running, in process" in second.errors


def has_written(path: Path) -> bool:
    return '"lag":0' in moldau_here("pipeline", "status", path, "--json").output


@pytest.mark.spark
def test_a_wrong_column_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    moldau_here("pipeline", "init", path)
    path.write_text(path.read_text().replace("amount > 100", "amont > 100"))
    done = moldau("pipeline", "check", path)
    assert (done.status, done.output) == (1, "")
    assert re.fullmatch(
        rf"moldau: {path}:\d+:\d+: 'big': \[UNRESOLVED_COLUMN.* `amont` .*\n", done.errors
    ), done.errors


@pytest.mark.spark
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.*")), ids=lambda path: path.name)
def test_the_examples_pass_their_own_tests(path: Path) -> None:
    done = moldau("pipeline", "test", path)
    assert done.status == 0, done.output + done.errors[-2000:]
    assert "0 failed" in done.output


WRONG_COLUMNS = """\
import moldau.pipelines as mp

numbers = mp.topic("numbers", schema="n INT")
in_sql = mp.sql("SELECT m FROM numbers", into=mp.topic("in_sql"))


@mp.flow(into=mp.topic("in_python"))
def in_python(numbers):
    return numbers.select("m")
"""


@pytest.mark.spark
def test_a_wrong_column_is_one_line_without_messages_of_spark(tmp_path: Path) -> None:
    """In a process of its own: the output of Spark's loggers bypasses what tests can capture."""
    path = tmp_path / "wrong.py"
    path.write_text(WRONG_COLUMNS)
    done = moldau("pipeline", "check", path)
    assert (done.status, done.output) == (1, "")
    # One line for each.
    first, second = done.errors.splitlines()
    assert first.startswith(f"moldau: {path}:4:"), done.errors
    assert second.startswith(f"{path}:9:"), done.errors
    assert all("[UNRESOLVED_COLUMN.WITH_SUGGESTION]" in line for line in (first, second))
