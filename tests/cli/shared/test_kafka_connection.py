"""Connecting to a broker by option, environment or file, and the error if there is none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.command import moldau, moldau_here
from cli.kafka_command import KafkaCommand, fresh


@contextmanager
def server_that_says(reply: bytes) -> Iterator[str]:
    """Responds to the first bytes of each connection with `reply`, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_the_option_goes_before_the_environment(kafka: KafkaCommand) -> None:
    ran = moldau_here("topics", "list", "-b", kafka.address, MOLDAU_BOOTSTRAP="127.0.0.1:1")
    assert (ran.status, ran.errors) == (0, "")


def test_the_first_address_that_answers_is_taken(kafka: KafkaCommand) -> None:
    ran = moldau_here("topics", "list", "--bootstrap", f"127.0.0.1:1,{kafka.address}")
    assert (ran.status, ran.errors) == (0, "")


def test_properties_of_the_client_come_from_a_file(kafka: KafkaCommand, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("# mine\nclient.id=from-the-file\nunknown.to.us=1\n")
    topic, group = kafka.topic(), fresh("group")
    with kafka.start(
        "consume", topic, "-g", group, "--follow", "--command-config", properties
    ) as running:
        clients: list[str] = []
        while not clients:
            assert running.poll() is None
            ran = moldau_here("groups", "describe", group, "--json", "-b", kafka.address)
            clients = ["from-the-file"] if "from-the-file" in ran.output else []
        running.kill()
    properties.write_text("security.protocol=SASL_SSL\n")
    ran = kafka("topics", "list", "--command-config", properties, status=1)
    assert ran.errors.startswith(
        "moldau: sasl.mechanism=GSSAPI is not supported; choose from PLAIN,"
    )
    ran = kafka("topics", "list", "--command-config", "/no/such/file", status=1)
    assert "/no/such/file" in ran.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("groups", "describe", "g"),
        ("configs", "describe", "topic", "t"),
        ("produce", "t"),
        ("consume", "t"),
        ("cluster", "describe"),
        ("bench", "latency"),
    ],
)
def test_an_unreachable_broker_is_an_error_of_one_line_with_a_hint(
    arguments: tuple[str, ...],
) -> None:
    ran = moldau_here(*arguments, "-b", "127.0.0.1:1")
    assert ran.status == 1
    assert ran.output == ""
    assert ran.errors == (
        "moldau: cannot reach 127.0.0.1:1: nothing listens there; set the brokers with "
        "--bootstrap or MOLDAU_BOOTSTRAP\n"
    )


def test_an_unreachable_broker_in_a_process_of_its_own() -> None:
    ran = moldau("topics", "list", "-b", "localhost:1")
    assert (ran.status, len(ran.errors.splitlines())) == (1, 1)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("no-such-host.invalid:9092", "the name is not known"),
        ("host:port", "is not an address"),
        ("", "no broker address; write host:port"),
    ],
)
def test_an_invalid_address_is_an_error_of_one_line(address: str, reason: str) -> None:
    ran = moldau_here("topics", "list", "-b", address)
    assert ran.status == 1
    assert reason in ran.errors
    assert len(ran.errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x50", "this port speaks TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this port speaks HTTP"),
        (b"", "requires TLS or SASL"),
        (b"\x7f\xff\xff\xff", "frame of 2147483647 bytes"),
    ],
)
def test_a_port_that_does_not_speak_kafka_is_an_error_of_one_line(
    reply: bytes, reason: str
) -> None:
    with server_that_says(reply) as address:
        ran = moldau_here("topics", "list", "-b", address)
    assert ran.status == 1
    assert reason in ran.errors
    assert len(ran.errors.splitlines()) == 1


def test_completion_knows_topics_and_groups(kafka: KafkaCommand) -> None:
    topic, group = kafka.topic(), fresh("group")
    kafka("groups", "reset-offsets", group, "-t", topic, "--to-latest", "--execute", "--yes")

    def completed(words: str) -> list[str]:
        ran = moldau(
            _MOLDAU_COMPLETE="complete_bash",
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split()) - 1),
            MOLDAU_BOOTSTRAP=kafka.address,
        )
        return ran.output.split()

    assert topic in completed(f"moldau consume {topic[:-1]}")
    assert group in completed(f"moldau groups describe {group[:-1]}")
    assert "reset-offsets" in completed("moldau groups res")
    assert "--bootstrap" in completed("moldau groups list --boot")


def test_completion_is_silent_without_a_broker() -> None:
    ran = moldau(
        _MOLDAU_COMPLETE="complete_bash",
        COMP_WORDS="moldau consume x",
        COMP_CWORD="2",
        MOLDAU_BOOTSTRAP="127.0.0.1:1",
    )
    assert (ran.output.strip(), ran.errors) == ("", "")
