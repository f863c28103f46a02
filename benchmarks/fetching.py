"""What does a fetch cost, by the clock and by the node's processor time per byte, and how much do
waiting fetches cost producers?

    python benchmarks/fetching.py [--label after] [--megabytes 256] [--rounds 5] [--against SRC]

One node in a process of its own, with the policy `os`, whose segments are sealed and in the page
cache; one raw connection that requests the next piece after it has received the last one, so that
fetches are never merged. The best round by processor time counts: other programs only add to it.
Results are kept by label, so that two versions of the code can be compared; with `--against`, the
`src` folder of another checkout with compiled loops, both take turns, and the other is "before".
"""

import argparse
import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from kept_results import keep, kept
from node_clients import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    RawConnection,
    create_topics,
    produce_request,
    request_frame,
)
from node_peers import Peer, running_peers

from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from moldau.protocol.messages.produce import ProduceResponse
from moldau.protocol.wire.frame import read_response

KIB = 1024
PIECES = (4 * KIB, 64 * KIB, 1024 * KIB)
BATCH_BYTES = {4 * KIB: 4_000, 64 * KIB: 16_000, 1024 * KIB: 16_000}
SEGMENT_BYTES = 16 << 20
WAITING = 1_000
PRODUCES = 300
LONG_MS = 300_000


def fetch_frame(
    topic: str, offset: int, size: int, *, min_bytes: int = 1, wait_ms: int = 0
) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max(size, 1),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return request_frame(request, FETCH_VERSION)


def fill(port: int, topic: str, value_bytes: int, total: int) -> None:
    # The records' time is long ago.
    settings = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
    create_topics(port, [topic], settings=settings)
    request = produce_request(topic, value_bytes)
    with RawConnection(port) as connection:
        for _ in range(total // value_bytes):
            answer = connection.ask(request, PRODUCE_VERSION, ProduceResponse)
            assert not answer.responses[0].partition_responses[0].error_code


def pass_through(connection: socket.socket, frames: list[bytes], into: memoryview) -> int:
    """The bytes of all responses."""
    # With a timeout MSG_WAITALL does not wait for all bytes.
    connection.settimeout(None)
    total = 0
    for frame in frames:
        connection.sendall(frame)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        connection.recv_into(into[:size], size, socket.MSG_WAITALL)
        total += size
    return total


def frames_of(port: int, topic: str, size: int) -> list[bytes]:
    """The requests that read the whole topic in pieces."""
    frames: list[bytes] = []
    offset = 0
    with RawConnection(port) as connection:
        while True:
            frames.append(fetch_frame(topic, offset, size))
            connection.socket.sendall(frames[-1])
            (length,) = struct.unpack(">i", connection.receive(4))
            _, answer = read_response(connection.receive(length), FetchResponse, FETCH_VERSION)
            assert isinstance(answer, FetchResponse)
            records = answer.responses[0].partitions[0].records
            if not isinstance(records, memoryview) or not records:
                return frames[:-1]
            offset = _next_offset(records)


def _next_offset(records: memoryview) -> int:
    position, following = 0, -1
    while position < len(records):
        base, length = struct.unpack_from(">qi", records, position)
        following = base + struct.unpack_from(">i", records, position + 23)[0] + 1
        position += 12 + length
    return following


class Reader:
    """Repeatedly reads a topic of one node in pieces."""

    def __init__(self, peer: Peer, size: int, total: int) -> None:
        topic = f"pieces-{size}"
        fill(peer.port, topic, BATCH_BYTES[size], total)
        self._peer = peer
        self._size = size
        self._frames = frames_of(peer.port, topic, size)
        self._repeats = max(1, 20_000 // len(self._frames)) if size == 4 * KIB else 4
        self._into = memoryview(bytearray(4 << 20))
        self._costs: list[tuple[float, float]] = []
        self._bytes_each = 0.0

    def run(self) -> None:
        with RawConnection(self._peer.port) as connection:
            cpu, began = self._peer.cpu_seconds(), perf_counter()
            got = 0
            for _ in range(self._repeats):
                got += pass_through(connection.socket, self._frames, self._into)
            spent_s = perf_counter() - began
            self._costs.append(((self._peer.cpu_seconds() - cpu) / got, spent_s / got))
        self._bytes_each = got / self._repeats / len(self._frames)

    def row(self) -> dict[str, object]:
        cpu, clock = (min(costs) for costs in zip(*self._costs, strict=True))
        usual = median(cost for cost, _ in self._costs)
        return {
            "case": f"fetch of {self._size // KIB} KiB",
            "bytes_per_fetch": round(self._bytes_each),
            "cpu_us_per_fetch": round(cpu * self._bytes_each * 1e6, 2),
            "median_cpu_us_per_fetch": round(usual * self._bytes_each * 1e6, 2),
            "clock_us_per_fetch": round(clock * self._bytes_each * 1e6, 2),
            "cpu_us_per_mib": round(cpu * (1 << 20) * 1e6, 1),
        }


def fetch_rows(peers: list[Peer], total: int, rounds: int) -> Iterator[list[dict[str, object]]]:
    """For each size a row of each node; the nodes take turns."""
    for size in PIECES:
        readers = [Reader(peer, size, total) for peer in peers]
        for number in range(rounds):
            for reader in readers if number % 2 else readers[::-1]:
                reader.run()
        yield [reader.row() for reader in readers]


@contextlib.contextmanager
def waiting_fetches(port: int, topic: str, offset: int, count: int) -> Iterator[None]:
    """Fetches that request more than will arrive."""
    frame = fetch_frame(topic, offset, 1 << 30, min_bytes=1 << 29, wait_ms=LONG_MS)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(RawConnection(port)).socket.sendall(frame)
        yield


def waiting_row(peer: Peer, count: int) -> dict[str, object]:
    """The time of acks=all while fetches wait on the same partition, and their memory."""
    topic = f"waited-for-{count}"
    create_topics(peer.port, [topic])
    request = produce_request(topic, 1_000)
    times: list[float] = []
    before = peer.private_mb()
    with waiting_fetches(peer.port, topic, 0, count), RawConnection(peer.port) as connection:
        for _ in range(PRODUCES):
            began = perf_counter()
            answer = connection.ask(request, PRODUCE_VERSION, ProduceResponse)
            times.append((perf_counter() - began) * 1000)
            assert not answer.responses[0].partition_responses[0].error_code
        held = peer.private_mb() - before
    return {
        "case": f"acks=all while {count} fetches wait",
        "p50_ms": round(median(times), 3),
        "held_mb": round(held, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--label", default="after")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path)
    asked = parser.parse_args()
    labels = [asked.label] if asked.against is None else ["before", asked.label]
    runs: dict[str, list[dict[str, object]]] = {label: [] for label in labels}
    with contextlib.ExitStack() as stack:
        peers: list[Peer] = []
        for source in [asked.against, None][-len(labels) :]:
            peers += stack.enter_context(running_peers(["moldau os"], source))
        started_mb = [peer.rss_mb() for peer in peers]
        for together in fetch_rows(peers, asked.megabytes << 20, asked.rounds):
            for label, row in zip(labels, together, strict=True):
                runs[label].append(row)
                print(label, row)
        for label, peer, before_mb in zip(labels, peers, started_mb, strict=True):
            rows = runs[label]
            rows.append(
                {
                    "case": "memory of the node after that, beyond its start",
                    "rss_mb": round(peer.rss_mb() - before_mb, 1),
                }
            )
            rows += [waiting_row(peer, count) for count in (0, WAITING)]
            print(label, *rows[-3:], sep="\n")
    keep("fetching", runs=kept("fetching").get("runs", {}) | runs)


if __name__ == "__main__":
    main()
