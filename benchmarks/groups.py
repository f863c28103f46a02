"""How fast does a coordinator commit offsets and complete rebalances, compared with Apache Kafka
4.3.1 in the same run?

    python benchmarks/groups.py [--rounds 3] [--peers "moldau group,apache"] [--quick]

Commits: each connection repeatedly commits four partitions, one request at a time. Groups: all
members of all groups join at once; the clock stops when every member has its assignment and a
heartbeat that does not request a rejoin. Moldau syncs its coordinator's log before it answers,
Apache Kafka does not. A ratio above 1 is in Moldau's favour.
"""

import argparse
import asyncio
from statistics import median
from time import perf_counter
from typing import NamedTuple

import uvloop
from async_connection import Connection
from kept_results import keep
from node_clients import create_topics
from node_peers import Peer, running_peers

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.wire.frame import build_request

TOPICS = [f"t{number}" for number in range(4)]
DEADLINE_S = 180
COMMIT_VERSION = 9
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


# Commits


async def commit_rate(port: int, connections: int, commits: int) -> tuple[float, float]:
    """Commits per second, and the 99th percentile of their times in milliseconds."""
    open_ones = [await Connection.open(port) for _ in range(connections)]
    took_ms: list[float] = []

    async def commit(number: int, connection: Connection) -> None:
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=number)]
        topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in TOPICS]
        request = OffsetCommitRequest(group_id=f"commits-{number}", topics=topics)
        first = await connection.ask(request, COMMIT_VERSION)
        assert first.topics[0].partitions[0].error_code == 0, first
        frame = b"".join(build_request(request, COMMIT_VERSION, correlation_id=1, client_id="b"))
        for _ in range(commits):
            began = perf_counter()
            await connection.exchange(frame)
            took_ms.append((perf_counter() - began) * 1000)

    began = perf_counter()
    await asyncio.gather(*(commit(number, each) for number, each in enumerate(open_ones)))
    rate = len(took_ms) / (perf_counter() - began)
    for each in open_ones:
        each.close()
    return rate, sorted(took_ms)[int(len(took_ms) * 0.99)]


# Groups


class GroupMember:
    def __init__(self, connection: Connection, group_id: str) -> None:
        self._connection = connection
        self._group_id = group_id
        self._member_id = ""

    async def settle(self) -> None:
        """Repeats until the member has its assignment and no other member is joining."""
        while not await self._is_settled():
            pass

    async def _is_settled(self) -> bool:
        joined = await self._connection.ask(
            JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=60_000,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
            )
        )
        self._member_id = joined.member_id
        if joined.error_code:
            assert joined.error_code in RETRIED, ErrorCode(joined.error_code)
            return False
        place = {
            "group_id": self._group_id,
            "generation_id": joined.generation_id,
            "member_id": self._member_id,
        }
        synced = await self._connection.ask(
            SyncGroupRequest(
                **place,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=m.member_id, assignment=b"all")
                    for m in joined.members
                ],
            )
        )
        if synced.error_code:
            return False
        beat = await self._connection.ask(HeartbeatRequest(**place))
        return bool(beat.error_code == 0)


RETRIED = {
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


async def settle_groups(port: int, groups: int, members: int, label: str) -> float:
    """Seconds."""
    everybody = [
        GroupMember(await Connection.open(port), f"{label}-{group}")
        for group in range(groups)
        for _ in range(members)
    ]
    began = perf_counter()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(member.settle() for member in everybody))
    return perf_counter() - began


# Both


class Figure(NamedTuple):
    case: str
    value: float
    less_is_better: bool = False


class Size(NamedTuple):
    """The amount of work; the smaller size is for trying the script."""

    commits: dict[int, int]
    """By the number of connections."""
    groups: tuple[tuple[int, int], ...]
    """Numbers of groups, and of members in each."""


FULL = Size({1: 500, 20: 100, 100: 40}, ((100, 10), (1, 300)))
QUICK = Size({1: 50, 20: 10}, ((10, 5), (1, 50)))


async def measure(peer: Peer, size: Size, label: str) -> list[Figure]:
    figures: list[Figure] = []
    for connections, commits in size.commits.items():
        rate, worst_ms = await commit_rate(peer.port, connections, commits)
        figures.append(Figure(f"commits/s, {connections} connections", rate))
        figures.append(Figure(f"p99 ms, {connections} connections", worst_ms, True))
    for groups, members in size.groups:
        took_s = await settle_groups(peer.port, groups, members, f"{label}-{members}")
        figures.append(Figure(f"s until {groups} x {members} members work", took_s, True))
    return figures


async def warm_up(peer: Peer) -> None:
    """The first request creates the internal topic of groups."""
    connection = await Connection.open(peer.port)
    for _ in range(DEADLINE_S * 10):
        answer = await connection.ask(FindCoordinatorRequest(coordinator_keys=["x"]))
        if answer.coordinators[0].error_code == 0:
            break
        await asyncio.sleep(0.1)
    await settle_groups(peer.port, 20, 1, "warm-up")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="moldau group,apache")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    results: dict[str, dict[str, list[float]]] = {}
    lower_is_better: set[str] = set()
    with running_peers(options.peers.split(",")) as peers:
        for peer in peers:
            create_topics(peer.port, TOPICS)
            uvloop.run(warm_up(peer))
        for number in range(options.rounds):
            for peer in peers:
                size = QUICK if options.quick else FULL
                for figure in uvloop.run(measure(peer, size, f"round-{number}")):
                    by_peer = results.setdefault(figure.case, {})
                    by_peer.setdefault(peer.label, []).append(figure.value)
                    if figure.less_is_better:
                        lower_is_better.add(figure.case)
    medians = {
        case: {label: round(median(values), 3) for label, values in by_peer.items()}
        for case, by_peer in results.items()
    }
    for case, by_label in medians.items():
        line = "  ".join(f"{label} {value:,.2f}" for label, value in by_label.items())
        print(f"{case:36} {line}  {_ratio(by_label, case in lower_is_better)}")
    if not options.quick:
        keep("groups", rounds=options.rounds, medians=medians)


def _ratio(by_label: dict[str, float], less_is_better: bool) -> str:
    ours = next((v for label, v in by_label.items() if label.startswith("moldau")), None)
    theirs = by_label.get("apache")
    if not ours or not theirs:
        return ""
    return f"ratio {theirs / ours if less_is_better else ours / theirs:.2f}"


if __name__ == "__main__":
    main()
