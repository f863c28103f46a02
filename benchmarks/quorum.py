"""How does a quorum of three Moldau controllers compare with three controllers of Apache Kafka
4.3.1, measured in one run on this machine?

    python benchmarks/quorum.py [propagation admin idle kill stop]
                                [--rounds 3] [--failovers 10] [--peers moldau,apache] [--quick]

for example, only failovers, twenty of each kind:

    python benchmarks/quorum.py kill stop --failovers 20

Each cluster has two brokers beside its controllers; each node is a process of its own, with default
settings. Both clusters run at once and are measured in turns, idle ones together; both get the same
requests over raw sockets. A ratio of the medians above 1 is in Moldau's favour, for any unit.

propagation: from CreateTopics at one broker until Metadata of the other shows the topic's leader.
admin: topics created, changed and deleted through the brokers, one request at a time and sixteen.
idle: memory and processor time of the processes, after the questions before it.
kill, stop: the active controller gets SIGKILL or SIGTERM while each broker gets one admin request
after the other: the time until another controller describes itself as the leader, and the longest
pause between two acknowledged admin requests of a broker.
"""

import argparse
import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import mean, median
from time import perf_counter
from typing import NamedTuple

from kept_results import keep, kept
from node_clients import RawConnection
from quorum_clients import (
    PACE_S,
    SECOND_MS,
    AdminWriter,
    Look,
    alter_config,
    create_topic,
    delete_topics,
    do,
    pause,
    propagation,
    requests_per_second,
    wait_whole,
)
from quorum_peers import Cluster, ClusterNode, running_clusters

PEERS = "moldau,apache"
WRITTEN_TOPIC = "written"
CONCURRENT = 16
FAILOVER_S = 60
# Long enough to see a second pause after the failover.
AFTER_FAILOVER_S = 3.0
SETTLE_S = 2.0


class Size(NamedTuple):
    """The amount of work; the smaller size is for trying the script."""

    topics: int
    sequential: int
    concurrent: int
    idle_s: float


FULL = Size(topics=100, sequential=300, concurrent=1_600, idle_s=20)
QUICK = Size(topics=20, sequential=50, concurrent=160, idle_s=5)


class Figure(NamedTuple):
    case: str
    unit: str
    value: float
    less_is_better: bool = True


@dataclass
class Row:
    question: str
    case: str
    unit: str
    less_is_better: bool
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, label: str, value: float) -> None:
        self.rounds.setdefault(label, []).append(round(value, 3))

    @property
    def medians(self) -> dict[str, float]:
        return {label: round(median(values), 3) for label, values in self.rounds.items()}

    @property
    def worst(self) -> dict[str, float]:
        pick = max if self.less_is_better else min
        return {label: pick(values) for label, values in self.rounds.items()}

    @property
    def ratio(self) -> float | None:
        """How many times better Moldau is."""
        ours, apaches = (self.medians.get(label) for label in ("moldau", "apache"))
        if not ours or not apaches:
            return None
        return round(apaches / ours if self.less_is_better else ours / apaches, 2)


Measured = Iterator[tuple[Cluster, Figure]]
Measure = Callable[[list[Cluster], int, Size], Measured]
"""One round of a question, for all clusters. Rounds are numbered, so that each has new topics."""


def measure_propagation(clusters: list[Cluster], round_: int, size: Size) -> Measured:
    for cluster in clusters:
        names = [f"propagated-{round_}-{number}" for number in range(size.topics)]
        with contextlib.ExitStack() as stack:
            brokers = [stack.enter_context(RawConnection(port)) for port in cluster.broker_ports]
            measured = [
                propagation(brokers[number % 2], brokers[(number + 1) % 2], name)
                for number, name in enumerate(names)
            ]
        do(cluster.broker_ports[0], delete_topics(*names))
        for when, times_ms in (
            ("response", [each.from_response for each in measured]),
            ("request", [each.from_request for each in measured]),
        ):
            case = f"known to the other broker, after the {when}"
            yield cluster, Figure(case, "ms", median(times_ms))
            yield cluster, Figure(f"{case}, longest", "ms", max(times_ms))


def measure_admin(clusters: list[Cluster], round_: int, size: Size) -> Measured:
    cases = ((1, size.sequential), (CONCURRENT, size.concurrent))
    for connections, count in cases:
        names = [f"admin-{round_}-{connections}-{number}" for number in range(count)]
        kinds = {
            "create a topic": [create_topic(name) for name in names],
            "change a setting": [alter_config(name, 1) for name in names],
            "delete a topic": [delete_topics(name) for name in names],
        }
        for kind, requests in kinds.items():
            case = f"{kind}, {connections} at a time"
            for cluster in clusters:
                rate = requests_per_second(cluster.broker_ports, requests, connections)
                yield cluster, Figure(case, "requests/s", rate, less_is_better=False)


def measure_idle(clusters: list[Cluster], _round: int, size: Size) -> Measured:
    active = {cluster.label: wait_whole(cluster) for cluster in clusters}
    pause(SETTLE_S)
    nodes = [node for cluster in clusters for node in cluster.nodes]
    began, before = perf_counter(), {node: node.cpu_seconds() for node in nodes}
    pause(size.idle_s)
    elapsed_s = perf_counter() - began
    used_ms = {node: (node.cpu_seconds() - before[node]) / elapsed_s * SECOND_MS for node in nodes}
    for cluster in clusters:
        for name, group in _groups(cluster, active[cluster.label]).items():
            cpu = mean(used_ms[node] for node in group)
            yield cluster, Figure(f"processor time, {name}", "ms/s", cpu)
            anonymous = mean(node.private_mb() for node in group)
            yield cluster, Figure(f"anonymous memory, {name}", "MB", anonymous)
            yield cluster, Figure(f"resident memory, {name}", "MB", mean(n.rss_mb() for n in group))


def _groups(cluster: Cluster, active: ClusterNode) -> dict[str, list[ClusterNode]]:
    return {
        "active controller": [active],
        "other controllers, each": [each for each in cluster.controllers if each is not active],
        "brokers, each": cluster.brokers,
        "all nodes, mean": cluster.nodes,
    }


def measure_kill(clusters: list[Cluster], _round: int, _size: Size) -> Measured:
    for cluster in clusters:
        for figure in failover(cluster, signal.SIGKILL):
            yield cluster, figure


def measure_stop(clusters: list[Cluster], _round: int, _size: Size) -> Measured:
    for cluster in clusters:
        for figure in failover(cluster, signal.SIGTERM):
            yield cluster, figure


def failover(cluster: Cluster, how: signal.Signals) -> list[Figure]:
    do(cluster.broker_ports[0], alter_config(WRITTEN_TOPIC, 0))
    active = wait_whole(cluster)
    others = [each for each in cluster.controllers if each is not active]
    writers = [AdminWriter(port, WRITTEN_TOPIC) for port in cluster.broker_ports]
    with contextlib.closing(Look(others)) as look:
        for writer in writers:
            writer.start()
        pause(SETTLE_S)
        began = perf_counter()
        active.signal(how)
        elected = _elected(look, cluster, began)
        for writer in writers:
            writer.wait_done_after(elected)
        pause(AFTER_FAILOVER_S)
    for writer in writers:
        writer.stop()
    active.wait_ended()
    active.start()
    wait_whole(cluster)
    pause_s = max(writer.longest_pause_s(began) for writer in writers)
    return [
        Figure("until another controller leads", "s", elected - began),
        Figure("without acknowledged admin requests", "s", pause_s),
    ]


def _elected(look: Look, cluster: Cluster, began: float) -> float:
    while look.leader() is None:
        if perf_counter() - began > FAILOVER_S:
            raise SystemExit(f"{cluster.label}: no new controller")
        pause(PACE_S)
    return perf_counter()


QUESTIONS: dict[str, Measure] = {
    "propagation": measure_propagation,
    "admin": measure_admin,
    "idle": measure_idle,
    "kill": measure_kill,
    "stop": measure_stop,
}
FAILOVERS = ("kill", "stop")


def measured(clusters: list[Cluster], question: str, rounds: int, size: Size) -> list[Row]:
    rows: dict[str, Row] = {}
    for round_ in range(rounds):
        for cluster, figure in QUESTIONS[question](clusters, round_, size):
            fresh = Row(question, figure.case, figure.unit, figure.less_is_better)
            rows.setdefault(figure.case, fresh).add(cluster.label, figure.value)
    return list(rows.values())


def show(row: Row, labels: list[str]) -> None:
    pairs = [(row.medians[label], row.worst[label]) for label in labels]
    figures = "".join(f"{middle:>12,.2f}{worst:>12,.2f}" for middle, worst in pairs)
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    print(f"{row.question:<12}{row.case:<56}{row.unit:>12}{figures}{ratio:>10}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("questions", nargs="*", choices=[*QUESTIONS, []], metavar="QUESTION")
    parser.add_argument("--rounds", type=int, default=3, help="of the other questions")
    parser.add_argument("--failovers", type=int, default=10, help="rounds of kill and stop")
    parser.add_argument("--peers", default=PEERS, help="the clusters, with commas between")
    parser.add_argument("--quick", action="store_true", help="less of everything; kept nowhere")
    arguments = parser.parse_args()
    labels = arguments.peers.split(",")
    size = QUICK if arguments.quick else FULL
    found = []
    with running_clusters(labels) as clusters:
        for cluster in clusters:
            do(cluster.broker_ports[0], create_topic(WRITTEN_TOPIC))
        head = "".join(f"{label:>12}{'worst':>12}" for label in labels)
        print(f"{'question':<12}{'':<56}{'':>12}{head}     ratio", flush=True)
        for question in arguments.questions or QUESTIONS:
            rounds = arguments.failovers if question in FAILOVERS else arguments.rounds
            for row in measured(clusters, question, rounds, size):
                show(row, labels)
                found.append(
                    asdict(row) | {"medians": row.medians, "worst": row.worst, "ratio": row.ratio}
                )
    if not arguments.quick:
        asked = {row["question"] for row in found}
        others = [row for row in kept("quorum").get("rows", []) if row["question"] not in asked]
        keep(
            "quorum", rounds=arguments.rounds, failovers=arguments.failovers, rows=[*others, *found]
        )


if __name__ == "__main__":
    main()
