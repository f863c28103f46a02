"""`moldau produce` with a broker that temporarily refuses records, like one with a full disk."""

import signal
import subprocess
from collections.abc import Iterator
from typing import IO

import pytest
from cli.command import COMMAND, moldau

from moldau.testing.thread_broker import ThreadBroker

ENDS_WITHIN_S = 60
"""A deadline for hanging commands: delivery.timeout.ms, which is Kafka's timeout, is twice as long.
"""


@pytest.fixture
def refusing() -> Iterator[str]:
    broker = ThreadBroker({})
    broker.start()
    try:
        broker.create_topic("t")
        broker.fail_next("Produce", "KAFKA_STORAGE_ERROR", times=1_000_000)
        yield broker.bootstrap
    finally:
        broker.close()


def produce(address: str, *options: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*COMMAND, "produce", "t", "--bootstrap", address, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def write(stream: IO[bytes] | None, content: bytes) -> None:
    assert stream is not None
    stream.write(content)
    stream.flush()


def read_line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode()


def test_the_error_is_reported_while_it_retries_until_the_timeout(refusing: str) -> None:
    ran = moldau("produce", "t", "--bootstrap", refusing, "--patience", 2, stdin=b"a\nb\n")
    assert ran.status == 1
    first, *others = ran.errors.splitlines()
    assert "KAFKA_STORAGE_ERROR" in first
    assert first.endswith("; retrying")
    assert "0 records written" in others[0]
    assert any("the last answer was KAFKA_STORAGE_ERROR" in line for line in others)


def test_it_stops_at_the_first_failure_although_more_input_may_come(refusing: str) -> None:
    with produce(refusing, "--patience", "1") as process:
        write(process.stdin, b"a\n")
        assert process.wait(ENDS_WITHIN_S) == 1
        assert process.stderr is not None
        assert b"stopped, the rest" in process.stderr.read()


def test_an_interrupt_ends_it_at_once(refusing: str) -> None:
    with produce(refusing, "--patience", "600") as process:
        write(process.stdin, b"a\n")
        assert "retrying" in read_line(process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDS_WITHIN_S) == 130
