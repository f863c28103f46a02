"""How does one node compare with Apache Kafka 4.3.1, measured in one run on this machine?

    python benchmarks/node.py [start produce consume latency requests topics connections clients]
                              [--rounds 3] [--peers "moldau os,moldau group,apache"] [--quick]

Both get the same requests from the same clients: Apache's own performance tools, confluent-kafka,
and raw sockets. Moldau runs with the flush policy `os`, the promise of Apache Kafka's defaults, and
also with its own default `group`, where acks=all waits for the disk. All nodes run at once and are
measured in turns, so that a busy minute of the machine affects all alike; the median of the rounds
counts. A ratio is how many times better Moldau is: above 1 is better, for any unit. Clients share
the processors with the nodes, so the node's own processor time is shown with the rates.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import NamedTuple

import node_tools
from kept_results import keep, kept
from node_clients import (
    confluent_consume,
    confluent_produce,
    create_topics,
    idle_connections,
    produce_first_record,
    request_rate,
    small_requests,
)
from node_peers import API_VERSIONS_V0, Peer, running_peers

PEERS = "moldau os,moldau group,apache"
BATCHES = ("linger.ms=5", "batch.size=65536")
LATENCY_RATE = 2_000
TOPICS = 1_000
CONNECTIONS = 10_000
PING_SECONDS = 3.0


class Size(NamedTuple):
    """The amount of work; the smaller size is for trying the script."""

    records: dict[int, int]
    warm_up: int
    latency_records: int
    client_records: int


FULL = Size({100: 3_000_000, 1000: 600_000}, 200_000, 20_000, 1_000_000)
QUICK = Size({100: 300_000, 1000: 60_000}, 50_000, 4_000, 100_000)


class Figure(NamedTuple):
    case: str
    unit: str
    value: float
    less_is_better: bool = False


@dataclass
class Row:
    question: str
    case: str
    unit: str
    less_is_better: bool
    rounds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def measured(self) -> dict[str, float]:
        return {label: round(median(values), 3) for label, values in self.rounds.items()}

    @property
    def ratios(self) -> dict[str, float]:
        """How many times better than Apache Kafka."""
        measured = self.measured
        peer = measured.pop("apache", 0)
        better = {
            label: peer / value if self.less_is_better else value / peer
            for label, value in measured.items()
            if peer and value
        }
        return {label: round(ratio, 2) for label, ratio in better.items()}


Measure = Callable[[Peer, int, Size], Iterator[Figure]]
"""One round of a question, for one node. Rounds are numbered, so that each uses new topics."""


class CpuTime:
    """Processor time of a node from now on, per unit of work."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._began = peer.cpu_seconds()

    def per(self, case: str, count: float, what: str) -> Figure:
        used = self._peer.cpu_seconds() - self._began
        return Figure(f"{case}, node's CPU", f"µs/{what}", used / count * 1e6, True)


def measure_start(peer: Peer, round_: int, _size: Size) -> Iterator[Figure]:
    peer.start_over()
    began = perf_counter()
    answered = peer.start()
    produce_first_record(peer.port, f"first-{round_}")
    yield Figure("new directory, to the first produced record", "s", perf_counter() - began, True)
    yield Figure("new directory, to the first answer", "s", answered, True)
    yield Figure("resident memory, idle", "MB", peer.rss_mb(), True)
    peer.stop()
    began = perf_counter()
    peer.start()
    produce_first_record(peer.port, f"again-{round_}")
    yield Figure("again, to the first produced record", "s", perf_counter() - began, True)


def measure_produce(peer: Peer, _round: int, size: Size) -> Iterator[Figure]:
    for value_bytes, count in size.records.items():
        for acks in ("1", "all"):
            case = f"{value_bytes} B, acks={acks}"
            topic = f"produce-{value_bytes}-{acks}"
            create_topics(peer.port, [topic])
            cpu = CpuTime(peer)
            produced = node_tools.produce(
                peer.bootstrap, topic, count=count, warm_up=size.warm_up, size=value_bytes,
                properties=(f"acks={acks}", *BATCHES),
            )  # fmt: skip
            yield Figure(case, "records/s", produced.records_per_second)
            yield cpu.per(case, count, "record")
    yield from memory_under_load(peer)


def measure_consume(peer: Peer, round_: int, size: Size) -> Iterator[Figure]:
    for value_bytes, count in size.records.items():
        case, topic = f"{value_bytes} B", f"consume-{value_bytes}"
        if round_ == 0:
            create_topics(peer.port, [topic])
            node_tools.produce(
                peer.bootstrap, topic, count=count, warm_up=0, size=value_bytes, properties=BATCHES
            )
        cpu = CpuTime(peer)
        consumed = node_tools.consume(peer.bootstrap, topic, count)
        yield Figure(f"{case}, fetching", "records/s", consumed.fetched_per_second)
        yield Figure(f"{case}, with joining", "records/s", consumed.records_per_second)
        yield cpu.per(case, count, "record")
    yield from memory_under_load(peer)


def memory_under_load(peer: Peer) -> Iterator[Figure]:
    """A map of log files counts as resident, although it only shows the system's page cache."""
    yield Figure("resident memory under load", "MB", peer.rss_mb(), True)
    yield Figure("private memory under load", "MB", peer.private_mb(), True)


def measure_latency(peer: Peer, _round: int, size: Size) -> Iterator[Figure]:
    create_topics(peer.port, ["latency"])
    produced = node_tools.produce(
        peer.bootstrap, "latency", count=size.latency_records, warm_up=size.latency_records // 4,
        size=1000, rate=LATENCY_RATE, properties=("acks=all", "linger.ms=0"),
    )  # fmt: skip
    case = f"{LATENCY_RATE}/s of 1 KB, acks=all"
    yield Figure(f"{case}, mean", "ms", produced.mean_ms, True)
    yield Figure(f"{case}, p99", "ms", produced.p99_ms, True)
    yield Figure(f"{case}, p99.9", "ms", produced.p999_ms, True)


def measure_requests(peer: Peer, _round: int, _size: Size) -> Iterator[Figure]:
    for name, frame in small_requests(peer.port).items():
        for connections, in_flight in ((1, 1), (8, 1), (8, 8)):
            case = f"{name}, {connections} x {in_flight} in flight"
            cpu = CpuTime(peer)
            rate = request_rate(
                peer.port, frame, connections=connections, in_flight=in_flight, seconds=PING_SECONDS
            )
            yield Figure(case, "requests/s", rate)
            yield cpu.per(case, rate * PING_SECONDS, "request")


def measure_topics(peer: Peer, _round: int, _size: Size) -> Iterator[Figure]:
    peer.start_over()
    peer.start()
    began = perf_counter()
    create_topics(peer.port, [f"topic-{number}" for number in range(TOPICS)])
    yield Figure(f"{TOPICS} topics created", "s", perf_counter() - began, True)
    yield Figure(f"resident memory with {TOPICS} topics", "MB", peer.rss_mb(), True)
    began = perf_counter()
    peer.stop()
    yield Figure(f"stop with {TOPICS} topics", "s", perf_counter() - began, True)
    began = perf_counter()
    peer.start()
    produce_first_record(peer.port, "topic-0")
    yield Figure(f"start with {TOPICS} topics", "s", perf_counter() - began, True)


def measure_connections(peer: Peer, _round: int, _size: Size) -> Iterator[Figure]:
    before = peer.rss_mb()
    began = perf_counter()
    with idle_connections(peer.port, CONNECTIONS):
        yield Figure(f"{CONNECTIONS} connections made", "s", perf_counter() - began, True)
        grown = peer.rss_mb() - before
        rate = request_rate(
            peer.port, API_VERSIONS_V0, connections=1, in_flight=1, seconds=PING_SECONDS
        )
    yield Figure(f"memory of {CONNECTIONS} idle connections", "MB", grown, True)
    yield Figure(f"beside {CONNECTIONS} idle connections", "requests/s", rate)


def measure_clients(peer: Peer, round_: int, size: Size) -> Iterator[Figure]:
    topic, count = f"confluent-{round_}", size.client_records
    create_topics(peer.port, [topic])
    case = "confluent-kafka produce, 100 B, acks=all"
    cpu = CpuTime(peer)
    yield Figure(case, "records/s", confluent_produce(peer.bootstrap, topic, count, 100))
    yield cpu.per(case, count, "record")
    case = "confluent-kafka consume, 100 B"
    cpu = CpuTime(peer)
    yield Figure(case, "records/s", confluent_consume(peer.bootstrap, topic, count))
    yield cpu.per(case, count, "record")


QUESTIONS: dict[str, Measure] = {
    "start": measure_start,
    "produce": measure_produce,
    "consume": measure_consume,
    "latency": measure_latency,
    "requests": measure_requests,
    "topics": measure_topics,
    "connections": measure_connections,
    "clients": measure_clients,
}


def measured(question: str, labels: list[str], rounds: int, size: Size) -> list[Row]:
    rows: dict[tuple[str, str], Row] = {}
    with running_peers(labels) as peers:
        for round_ in range(rounds):
            for peer in peers:
                for case, unit, value, less_is_better in QUESTIONS[question](peer, round_, size):
                    fresh = Row(question, case, unit, less_is_better)
                    row = rows.setdefault((case, unit), fresh)
                    row.rounds.setdefault(peer.label, []).append(value)
    return list(rows.values())


def show(row: Row, labels: list[str]) -> None:
    figures = row.measured
    shown = "".join(f"{figures.get(label, float('nan')):>15,.2f}" for label in labels)
    ratios = "  ".join(f"{label} {ratio:.2f}x" for label, ratio in row.ratios.items())
    print(f"{row.question:<12}{row.case:<58}{row.unit:>12}{shown}   {ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", nargs="*", choices=[*QUESTIONS, []])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=PEERS, help="the nodes, with commas between")
    parser.add_argument("--quick", action="store_true", help="less of everything; kept nowhere")
    arguments = parser.parse_args()
    labels = arguments.peers.split(",")
    head = "".join(f"{label:>15}" for label in labels)
    print(f"{'question':<12}{'':<58}{'':>12}{head}   times better than Apache Kafka", flush=True)
    rows = []
    for question in arguments.questions or QUESTIONS:
        size = QUICK if arguments.quick else FULL
        for row in measured(question, labels, arguments.rounds, size):
            show(row, labels)
            rows.append(asdict(row) | {"measured": row.measured, "ratios": row.ratios})
    if not arguments.quick:
        asked = {row["question"] for row in rows}
        others = [row for row in kept("node").get("rows", []) if row["question"] not in asked]
        keep("node", rounds=arguments.rounds, rows=[*others, *rows])


if __name__ == "__main__":
    main()
