"""How does one misbehaving client affect others? Compared with Apache Kafka 4.3.1, in one run.

    python benchmarks/fairness.py [--seconds 8] [--peers "moldau group,apache"] [--only TEXT]

A rude client (`rude_clients.py`) misuses a node for some seconds, over connections without a user.
Meanwhile two polite clients send one request at a time, each over a connection of its own:
ApiVersions, and Produce of one record with acks=all. Shown: the median, the 99th percentile and the
longest of their response times, where unanswered requests count with their time so far; the node's
largest anonymous memory; its processor time. The first case has no rude client. A node that dies,
or does not answer within a minute after the rude client has gone, is started again and marked.
"""

import argparse
import contextlib
import multiprocessing
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import rude_clients
from kept_results import keep, kept
from node_clients import PRODUCE_VERSION, produce_request, request_frame
from node_peers import API_VERSIONS_V0, HOST, Peer, running_peers

PEERS = "moldau group,apache"
PACE_S = 0.002
RECOVERY_S = 60.0
MEMORY_EVERY_S = 0.05
HUNDREDTHS = 100


@dataclass
class Row:
    case: str
    peer: str
    asked: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    produce_p50_ms: float
    produce_p99_ms: float
    produce_longest_ms: float
    anonymous_mb: float
    cpu_s: float
    recovered: bool


class Polite(threading.Thread):
    """Sends a request, waits for the response, pauses a moment, and repeats, until stopped."""

    def __init__(self, port: int, frame: bytes) -> None:
        super().__init__(daemon=True)
        self._connection = socket.create_connection((HOST, port), timeout=RECOVERY_S)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = frame
        self._stopping = threading.Event()
        self._asked_at: float | None = None
        self.waits_ms: list[float] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while not self._stopping.wait(PACE_S):
                self._asked_at = perf_counter()
                self._connection.sendall(self._frame)
                head = self._connection.recv(4, socket.MSG_WAITALL)
                if not head:
                    return
                self._connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
                self.waits_ms.append((perf_counter() - self._asked_at) * 1000)
                self._asked_at = None

    def stop(self) -> None:
        asked_at = self._asked_at
        if asked_at is not None:
            self.waits_ms.append((perf_counter() - asked_at) * 1000)
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self.join()
        self._connection.close()

    @property
    def percentiles(self) -> tuple[float, float, float]:
        """The median, the 99th percentile and the longest."""
        waits = self.waits_ms
        p99 = quantiles(waits, n=HUNDREDTHS)[-1] if len(waits) > 1 else waits[0]
        return round(median(waits), 2), round(min(p99, max(waits)), 2), round(max(waits), 2)


def anonymous_mb(peer: Peer) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{peer.pid}/status").read_text("ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1000
    return 0.0


def measured(case: rude_clients.Case, peer: Peer, seconds: float) -> Row:
    rude = multiprocessing.get_context("spawn").Process(
        target=rude_clients.run, args=(case.name, peer.port, seconds)
    )
    produce = request_frame(produce_request(rude_clients.TOPIC, 100), PRODUCE_VERSION)
    politest = [Polite(peer.port, API_VERSIONS_V0), Polite(peer.port, produce)]
    # The writes of the previous case must not slow this one down.
    os.sync()
    cpu_before = peer.cpu_seconds()
    rude.start()
    for polite in politest:
        polite.start()
    largest = 0.0
    while rude.is_alive():
        largest = max(largest, anonymous_mb(peer))
        rude.join(MEMORY_EVERY_S)
    for polite in politest:
        polite.stop()
    recovered = answers_again(peer)
    asking, producing = (polite.percentiles for polite in politest)
    return Row(
        case.name,
        peer.label,
        len(politest[0].waits_ms),
        *asking,
        *producing,
        anonymous_mb=round(largest, 1),
        cpu_s=round(peer.cpu_seconds() - cpu_before, 1) if peer.is_running else 0.0,
        recovered=recovered,
    )


def answers_again(peer: Peer) -> bool:
    give_up = perf_counter() + RECOVERY_S
    while peer.is_running and perf_counter() < give_up:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((HOST, peer.port), timeout=1)
            with connection:
                connection.sendall(API_VERSIONS_V0)
                if connection.recv(4):
                    return True
        select.select([], [], [], MEMORY_EVERY_S)
    return False


def rows(labels: list[str], seconds: float, only: str) -> Iterator[Row]:
    cases = [case for case in rude_clients.CASES if only in case.name]
    with running_peers(labels) as peers:
        for peer in peers:
            rude_clients.prepare(peer.port)
        for case in cases:
            for peer in peers:
                row = measured(case, peer, seconds)
                yield row
                if not row.recovered:
                    peer.start_over()
                    peer.start()
                    rude_clients.prepare(peer.port)


def show(row: Row) -> None:
    asking = (row.p50_ms, row.p99_ms, row.longest_ms)
    producing = (row.produce_p50_ms, row.produce_p99_ms, row.produce_longest_ms)
    figures = (*asking, *producing)
    shown = "".join(f"{figure:>10,.1f}" for figure in figures)
    end = "" if row.recovered else "   did not recover"
    memory = f"{row.anonymous_mb:>9,.0f} MB{row.cpu_s:>7.1f} s"
    print(f"{row.case:<56}{row.peer:<14}{shown}{memory}{end}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each case")
    parser.add_argument("--peers", default=PEERS, help="the nodes, with commas between")
    parser.add_argument("--only", default="", help="cases with this text in their name")
    parser.add_argument("--keep-nothing", action="store_true")
    arguments = parser.parse_args()
    head = "".join(f"{each:>10}" for each in ("p50", "p99", "longest") * 2)
    print(f"{'others wait, in ms: ApiVersions, then acks=all':<70}{head}   anonymous   CPU")
    found = []
    for row in rows(arguments.peers.split(","), arguments.seconds, arguments.only):
        show(row)
        found.append(asdict(row))
    if not arguments.keep_nothing:
        measured_now = {(row["case"], row["peer"]) for row in found}
        earlier = [
            row
            for row in kept("fairness").get("rows", [])
            if (row["case"], row["peer"]) not in measured_now
        ]
        keep("fairness", seconds=arguments.seconds, rows=[*earlier, *found])


if __name__ == "__main__":
    main()
