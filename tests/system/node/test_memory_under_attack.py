"""A node's own memory stays small despite everything that clients begin and do not finish. Measured
from outside: the anonymous memory of a real process, during the attack.
"""

import contextlib
import resource
import select
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.missing import skip_except_in_ci
from support.running_node import QUICK_SETTINGS, RunningNode
from support.wire_client import WireClient, create_topic, parse_address

from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.frame import build_request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ANONYMOUS_MB_MAX = 300
HALF_FRAMES = 700
LARGE_FRAMES = 20
FRAME_BYTES = 100_000_000
SENT_BYTES_MAX = 90_000_000
WAITING_FETCHES = 200
BATCH_BYTES = 500_000
BATCHES = 32
FETCH_VERSION = 12
PRODUCE_VERSION = 9
QUIET_S = 0.3
"""The node has read nothing for so long: it has had enough."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path, QUICK_SETTINGS) as node:
        node.start()
        yield node
        with WireClient(node.address) as client:
            client.ask(ApiVersionsRequest())
        assert node.stop() == 0
        assert "Traceback" not in node.errors


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = HALF_FRAMES + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        skip_except_in_ci(f"needs {wanted} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def anonymous_mb(node: RunningNode) -> float:
    """After everything that was sent so far was processed."""
    assert node.process is not None
    with WireClient(node.address) as client:
        client.ask(ApiVersionsRequest())
    status = Path(f"/proc/{node.process.pid}/status").read_text("ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) / 1000


def connect(stack: contextlib.ExitStack, node: RunningNode) -> socket.socket:
    return stack.enter_context(socket.create_connection(parse_address(node.address), 30))


def test_frames_that_were_only_announced_take_nothing(node: RunningNode) -> None:
    largest = 0.0
    with contextlib.ExitStack() as stack:
        for number in range(HALF_FRAMES):
            connect(stack, node).sendall(struct.pack(">i", FRAME_BYTES) + b"later")
            if number % 50 == 0:
                largest = max(largest, anonymous_mb(node))
        largest = max(largest, anonymous_mb(node))
    assert largest < ANONYMOUS_MB_MAX


def test_frames_that_arrive_for_the_most_part_take_a_share_of_the_memory(
    node: RunningNode,
) -> None:
    piece = memoryview(bytes(1 << 20))
    largest = 0.0
    with contextlib.ExitStack() as stack:
        left: dict[socket.socket, int] = {}
        for _ in range(LARGE_FRAMES):
            connection = connect(stack, node)
            connection.sendall(struct.pack(">i", FRAME_BYTES))
            connection.setblocking(False)
            left[connection] = SENT_BYTES_MAX
        while left:
            _, writable, _ = select.select([], list(left), [], QUIET_S)
            if not writable:
                break
            for connection in writable:
                try:
                    left[connection] -= connection.send(piece[: left[connection]])
                except OSError:
                    left[connection] = 0
                if not left[connection]:
                    del left[connection]
            largest = max(largest, anonymous_mb(node))
    assert largest < ANONYMOUS_MB_MAX


def test_fetches_that_wait_keep_no_records(node: RunningNode) -> None:
    create_topic(node.address, "loaded")
    batch = build_batch([Record(offset=0, timestamp=0, key=None, value=bytes(BATCH_BYTES))])
    with WireClient(node.address) as client:
        sent = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name="loaded", partition_data=[sent])
        produce = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        for _ in range(BATCHES):
            answer = client.ask(produce, PRODUCE_VERSION)
            assert answer.responses[0].partition_responses[0].error_code == 0
    requested = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**31 - 1)
    fetch = FetchRequest(
        max_wait_ms=30_000,
        min_bytes=2**31 - 1,
        max_bytes=2**31 - 1,
        topics=[FetchTopic(topic="loaded", partitions=[requested])],
    )
    frame = b"".join(build_request(fetch, FETCH_VERSION, correlation_id=1, client_id="waits"))
    largest = 0.0
    with contextlib.ExitStack() as stack:
        for number in range(WAITING_FETCHES):
            connect(stack, node).sendall(frame)
            if number % 20 == 0:
                largest = max(largest, anonymous_mb(node))
        largest = max(largest, anonymous_mb(node))
    assert largest < ANONYMOUS_MB_MAX
