"""The end of commands and their behaviour on a terminal: interrupts, closed pipes, progress bars,
confirmations.
"""

import signal
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from cli.kafka_command import KafkaCommand, fresh

if TYPE_CHECKING:
    import subprocess


def output_of(running: "subprocess.Popen[bytes]") -> IO[bytes]:
    assert running.stdout is not None
    return running.stdout


def test_an_interrupted_member_has_committed_what_it_printed(kafka: KafkaCommand) -> None:
    topic, group = kafka.topic(), fresh("group")
    kafka.fill(topic, ["1", "2", "3"])
    options = ("consume", topic, "-g", group, "--follow", "--from", "beginning")
    with kafka.start(*options) as running:
        assert [output_of(running).readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate()
    assert (running.returncode, output, errors) == (130, b"", b"")
    (found,) = kafka.json("groups", "describe", group)
    assert found["members"] == []
    assert [row["committed"] for row in found["partitions"]] == [3]


def test_a_terminated_member_has_left_its_group(kafka: KafkaCommand) -> None:
    topic, group = kafka.topic(), fresh("group")
    kafka.fill(topic, ["1"])
    options = ("consume", topic, "-g", group, "--follow", "--from", "beginning")
    with kafka.start(*options) as running:
        assert output_of(running).readline() == b"1\n"
        running.terminate()
        _, errors = running.communicate()
    assert (running.returncode, errors) == (143, b"")
    (found,) = kafka.json("groups", "describe", group)
    assert (found["members"], found["partitions"][0]["committed"]) == ([], 1)


def test_an_interrupted_producer_is_quiet(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    with kafka.start("produce", topic) as running:
        assert running.stdin is not None
        running.stdin.write(b"one\ntwo\n")
        running.stdin.flush()
        # Lines arrive although the input has not ended.
        assert kafka("consume", topic, "--max", 2, "--timeout", 60).lines == ["one", "two"]
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate()
    assert (running.returncode, errors) == (130, b"")


def test_an_interrupted_bench_deletes_its_topic(kafka: KafkaCommand) -> None:
    with kafka.start("bench", "produce", "--records", 10_000_000, "--rate", 10) as running:
        while not (made := [t for t in kafka("topics", "list", "-q").lines if "bench" in t]):
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate()
    assert (running.returncode, errors) == (130, b"")
    assert made[0] not in kafka("topics", "list", "-q").lines


def test_a_reader_that_leaves_early_is_not_an_error(kafka: KafkaCommand) -> None:
    topic, group = kafka.topic(), fresh("group")
    # More than any pipe holds.
    kafka.fill(topic, ["x" * 1000] * 5000)
    with kafka.start("consume", topic, "-g", group) as running:
        output_of(running).readline()
        output_of(running).close()
        assert running.stderr is not None
        errors = running.stderr.read()
    assert (running.returncode, errors) == (141, b"")
    assert kafka.json("groups", "describe", group)[0]["members"] == []


@pytest.mark.parametrize("options", [(), ("--json",), ("-q",)])
def test_a_short_list_into_a_closed_pipe_is_not_an_error(
    kafka: KafkaCommand, options: tuple[str, ...]
) -> None:
    kafka.topic()
    with kafka.start("topics", "list", *options) as running:
        output_of(running).close()
        assert running.stderr is not None
        errors = running.stderr.read()
    assert (running.returncode, errors) == (141, b"")


def test_a_terminal_gets_a_table_in_colour_unless_it_wants_none(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    status, printed = kafka.on_a_terminal("topics", "describe", topic)
    assert (status, "\x1b[1;36m" in printed) == (0, True)
    assert "partition" in printed
    _, printed = kafka.on_a_terminal("topics", "describe", topic, NO_COLOR="1")
    assert "\x1b[1;36m" not in printed
    assert "\x1b" not in kafka("topics", "describe", topic).output


def test_a_record_cannot_take_the_terminal_over(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    kafka("produce", topic, stdin=b"\x1b]0;evil\x07 \xff text\n")
    status, printed = kafka.on_a_terminal("consume", topic)
    assert (status, printed) == (0, "\\x1b]0;evil\\x07 \\xff text\r\n")


def test_a_long_production_shows_its_progress(kafka: KafkaCommand, tmp_path: Path) -> None:
    topic = kafka.topic()
    lines = tmp_path / "lines"
    lines.write_text("a line\n" * 1000)
    status, printed = kafka.on_a_terminal("produce", topic, "-f", lines, "--rate", 2000)
    assert status == 0
    assert "producing" in printed
    assert "1000 records written" in printed


@pytest.mark.parametrize(("typed", "status"), [(b"n\n", 130), (b"y\n", 0)])
def test_deleting_requires_a_confirmation(kafka: KafkaCommand, typed: bytes, status: int) -> None:
    topic = kafka.topic()
    ended, printed = kafka.on_a_terminal("topics", "delete", topic, typed=typed)
    assert f"Delete {topic} and all their records?" in printed
    assert ended == status
    assert (topic in kafka("topics", "list", "-q").lines) == (status != 0)


def test_yes_replaces_the_confirmation(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    status, printed = kafka.on_a_terminal("topics", "delete", topic, "--yes")
    assert (status, printed) == (0, f"deleted {topic}\r\n")
