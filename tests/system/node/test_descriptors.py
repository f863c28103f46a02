"""Clients that take every descriptor they can get leave those that the logs need."""

import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.running_node import RunningNode, freeze
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import create_topics, produce, read_all

from moldau.protocol.error_codes import ErrorCode

FILES_MAX = 200
PARTITIONS = 40


def test_a_flood_of_connections_leaves_the_logs_their_files(tmp_path: Path) -> None:
    limited = ("sh", "-c", f'ulimit -n {FILES_MAX} && exec "$@"', "sh")
    with RunningNode(tmp_path, prefix=limited) as node, ExitStack() as flood:
        node.start()
        with WireClient(node.address) as client:
            create_topics(client, {"kept": PARTITIONS})
            assert node.process is not None
            # All of them are there at its next check.
            freeze(node.process.pid)
            for _ in range(2 * FILES_MAX):
                flood.enter_context(socket.create_connection(("127.0.0.1", node.port)))
            node.process.send_signal(signal.SIGCONT)
            for partition in range(PARTITIONS):
                assert produce(client, "kept", b"a", partition=partition) == (0, 0)
                assert read_all(client, "kept", partition) == [b"a"]
            wait_for(lambda: "ulimit -n" in node.errors, "the refusals in the log")
        flood.close()
        wait_for(lambda: node.resources.num_fds() < FILES_MAX // 2, "connections to be closed")
        with WireClient(node.address) as client:
            create_topics(client, {"more": PARTITIONS})
            assert produce(client, "more", b"a") == (0, 0)
        assert node.stop() == 0


@contextmanager
def no_more_files(node: RunningNode) -> Iterator[None]:
    """Every further open of the process fails, as if another process had taken all descriptors."""
    assert node.process is not None
    before = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, before)


def test_without_descriptors_nothing_is_lost_and_everything_resumes_when_there_are_some(
    tmp_path: Path,
) -> None:
    large = b"x" * 700_000
    storage_error = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    with RunningNode(tmp_path) as node:
        node.start()
        with WireClient(node.address) as client:
            create_topics(client, {"kept": 1}, {"segment.bytes": str(1 << 20)})
            assert produce(client, "kept", large) == (0, 0)
            # Modules of handlers are files, too: from now on they are loaded.
            assert read_all(client, "kept") == [large]
            with no_more_files(node):
                # A new segment, and a new log.
                assert produce(client, "kept", large) == storage_error
                assert create_topics(client, {"new": 2}) == {"new": (0, None)}
                assert produce(client, "new", b"a") == storage_error
                assert read_all(client, "kept") == [large]
            assert produce(client, "kept", large) == (0, 1)
            wait_for(lambda: produce(client, "new", b"a", partition=1)[0] == 0, "the new log")
            assert read_all(client, "kept") == [large, large]
        assert "raise the number that this process may have (ulimit -n)" in node.errors
        assert "offline" not in node.errors
        assert node.stop() == 0
        node.start()
        with WireClient(node.address) as client:
            assert read_all(client, "kept") == [large, large]
            assert produce(client, "new", b"b") == (0, 0)
