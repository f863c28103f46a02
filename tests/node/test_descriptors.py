"""Clients that take every descriptor they can get do not take those that the logs need."""

import signal
import socket
from contextlib import ExitStack
from pathlib import Path

from node.questions import create_topics, produce, read_all
from running_node import RunningNode, wait_for
from wire_client import WireClient

FILES_MAX = 200
PARTITIONS = 40


def test_a_flood_of_connections_leaves_the_logs_their_files(tmp_path: Path) -> None:
    limited = ("sh", "-c", f'ulimit -n {FILES_MAX} && exec "$@"', "sh")
    with RunningNode(tmp_path, prefix=limited) as node, ExitStack() as flood:
        node.start()
        with WireClient(node.address) as client:
            create_topics(client, {"kept": PARTITIONS})
            assert node.process is not None
            # All of them are there when it looks again.
            node.process.send_signal(signal.SIGSTOP)
            for _ in range(2 * FILES_MAX):
                flood.enter_context(socket.create_connection(("127.0.0.1", node.port)))
            node.process.send_signal(signal.SIGCONT)
            for partition in range(PARTITIONS):
                assert produce(client, "kept", b"a", partition=partition) == (0, 0)
                assert read_all(client, "kept", partition) == [b"a"]
            wait_for(lambda: "ulimit -n" in node.errors, "the refusals to be told")
        flood.close()
        wait_for(lambda: node.resources.num_fds() < FILES_MAX // 2, "connections to be closed")
        with WireClient(node.address) as client:
            create_topics(client, {"more": PARTITIONS})
            assert produce(client, "more", b"a") == (0, 0)
        assert node.stop() == 0
