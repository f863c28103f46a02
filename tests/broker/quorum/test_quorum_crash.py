"""A voter loses its power after any effect on its disk: what it has promised to the others still
holds, and it rejoins with the same log. Among them are the moments between writing and renaming
quorum-state, between append and flush, truncation and checkpoint, a snapshot's file and its name.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from broker.metadata_node import config
from broker.quorum.quorum_cluster import METADATA, QuorumCluster
from support.waiting import until

from moldau.core.quorum.election import decode_election
from moldau.core.quorum.positions import FIRST_POSITION, LogPosition, has_all_of
from moldau.core.quorum.rpc import (
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from moldau.core.quorum.voters import VoterKey
from moldau.testing.simulated_disk import Effect, SimulatedDisk
from moldau.testing.simulated_power import durable_content
from moldau.types import LeaderEpoch

SETTINGS = {
    "internal.metadata.log.segment.bytes": "1500",
    "metadata.log.max.record.bytes.between.snapshots": "2500",
    "metadata.max.retention.bytes": "5000",
    "controller.quorum.fetch.snapshot.max.bytes": "900",
}


@dataclass(frozen=True)
class Promised:
    """The responses that a node has sent to the others."""

    epoch: int = 0
    vote: VoterKey | None = None
    """In that epoch."""
    end: LogPosition = FIRST_POSITION
    """It has everything before this."""


@dataclass
class CrashPoint:
    effect: Effect
    disk: SimulatedDisk
    promised: Promised


@dataclass
class History:
    """Of the nodes of a cluster, by their ids."""

    points: dict[int, list[CrashPoint]] = field(default_factory=lambda: {1: [], 2: [], 3: []})
    promised: dict[int, Promised] = field(
        default_factory=lambda: dict.fromkeys((1, 2, 3), Promised())
    )

    def watch(self, cluster: QuorumCluster) -> None:
        cluster.on_sent, cluster.on_response = self.sent, self.responded
        for number, disk in cluster.disks.items():
            self._watch_disk(number, disk)

    def _watch_disk(self, number: int, disk: SimulatedDisk) -> None:
        def keep(effect: Effect) -> None:
            point = CrashPoint(effect, disk.fork(), self.promised[number])
            self.points[number].append(point)

        disk.on_effect(keep)

    def sent(self, sender: int, request: Request) -> None:
        if isinstance(request, FetchRequest):
            self._promise(sender, request.epoch, end=request.position)
        elif isinstance(request, VoteRequest) and not request.is_pre_vote:
            self._promise(sender, request.epoch, vote=request.candidate)

    def responded(self, node: int, request: Request, response: Response) -> None:
        if isinstance(response, VoteResponse):
            assert isinstance(request, VoteRequest)
            is_vote = response.is_granted and not request.is_pre_vote
            vote = request.candidate if is_vote else None
            self._promise(node, response.leadership.epoch, vote=vote)

        if isinstance(response, FetchResponse) and response.diverging is not None:
            # It must drop records, which cannot be committed.
            assert isinstance(request, FetchRequest)
            self._promise(request.replica.node_id, request.epoch, end=FIRST_POSITION)

    def _promise(
        self,
        node: int,
        epoch: LeaderEpoch,
        *,
        vote: VoterKey | None = None,
        end: LogPosition | None = None,
    ) -> None:
        before = self.promised[node]
        assert epoch >= before.epoch, "the epoch fell"
        same = before.vote if epoch == before.epoch else None
        assert not (vote and same) or vote == same, "a second vote in an epoch"
        self.promised[node] = Promised(epoch, vote or same, end or before.end)


async def happen(cluster: QuorumCluster) -> int:
    """Elections, a truncation, a snapshot. Returns the node that had them all."""
    await cluster.start_all()
    victim = await cluster.wait_for_leader()
    for number in range(5):
        victim = await cluster.commit(f"first-{number}")
    cluster.isolate(victim.id)
    for number in range(20):
        offset = victim.quorum.append([config(f"lost-{number}", "x" * 40)], 1)
    await until(lambda: victim.quorum.log.flushed_offset > offset)
    victim.quorum.store_recovery_point()
    await cluster.commit("second", not_by=victim.id)
    cluster.heal()
    await cluster.wait_until_equal()
    cluster.isolate(victim.id)
    number, leader = 0, await cluster.commit("third", not_by=victim.id)
    while leader.quorum.log.start_offset <= victim.quorum.log.log.log_end_offset:
        leader = await cluster.commit(f"third-{number % 9}", f"{number}" * 10, not_by=victim.id)
        number += 1
    cluster.heal()
    await cluster.wait_until_equal()
    killed = (await cluster.wait_for_leader()).id
    await cluster.kill(killed)
    await cluster.commit("last")
    await cluster.start(killed)
    await cluster.wait_until_equal()
    return victim.id


def left_by_crashes(disk: SimulatedDisk, chance: Random) -> Iterator[SimulatedDisk]:
    yield disk.after_crash(lambda _: True)
    yield disk.after_crash(lambda _: False)
    yield disk.crash(chance)
    yield disk.crash(chance, any_subset=True)


async def check_promises(number: int, disk: SimulatedDisk, promised: Promised) -> None:
    """The node starts alone."""
    stored = disk.files().get(f"{METADATA}/quorum-state")
    cluster = QuorumCluster(settings=SETTINGS, disks={number: disk})
    if stored is not None:
        election = decode_election(stored)
        assert election.epoch >= promised.epoch
        if promised.vote is not None and election.epoch == promised.epoch:
            found = election.voted_for
            is_leader = election.leader_id == promised.vote.node_id
            assert is_leader or (found is not None and found.node_id == promised.vote.node_id)
    else:
        assert promised.epoch == 0
    member = await cluster.start(number)
    try:
        log = member.quorum.log
        assert has_all_of(log, promised.end) or log.start_offset >= promised.end.offset
    finally:
        await cluster.close()


async def check_rejoin(number: int, disk: SimulatedDisk, others: dict[int, SimulatedDisk]) -> None:
    disks = {each: other.fork() for each, other in others.items()}
    cluster = QuorumCluster(settings=SETTINGS, disks={**disks, number: disk})
    try:
        await cluster.start_all()
        await cluster.commit("after the crash")
        await cluster.wait_until_equal()
        values = [member.values for member in cluster.members.values()]
        assert values[0] == values[1] == values[2]
        assert values[0].keys() >= {f"first-{each}" for each in range(5)} | {"second", "last"}
        assert not any(name.startswith("lost") for name in values[0])
        assert [member.failures for member in cluster.members.values()] == [[], [], []]
    finally:
        await cluster.close()


async def history() -> tuple[int, History, dict[int, SimulatedDisk]]:
    cluster, history = QuorumCluster(settings=SETTINGS), History()
    history.watch(cluster)
    victim = await happen(cluster)
    await cluster.close()
    others = {each: disk for each, disk in cluster.disks.items() if each != victim}
    return victim, history, others


async def judge(step: int, rejoin_step: int) -> int:
    """Each `step`th crash point is checked, each `rejoin_step`th of them in a cluster, too."""
    victim, past, others = await history()
    chance = Random(8)
    points = past.points[victim]
    paths = {effect.path.rpartition("/")[2] for effect in (each.effect for each in points)}
    assert {"quorum-state", "recovery-point-offset-checkpoint"} <= paths
    assert any(name.endswith(".checkpoint.part") for name in paths)
    checked = 0
    for number, point in enumerate(points[chance.randrange(step) :: step]):
        variants = list(left_by_crashes(point.disk, chance))
        disk = chance.choice(variants)
        try:
            await check_promises(victim, disk.fork(), point.promised)
            if number % rejoin_step == 0:
                await check_rejoin(victim, disk, others)
        except (Exception, asyncio.CancelledError) as error:
            raise AssertionError(f"after {point.effect}, {point.promised}") from error
        checked += 1
    return checked


async def test_a_voter_keeps_its_promises_after_a_crash() -> None:
    assert await judge(step=4, rejoin_step=6) > 30


@pytest.mark.slow
async def test_no_effect_is_a_bad_moment_to_crash() -> None:
    assert await judge(step=1, rejoin_step=2) > 120


async def test_a_vote_that_a_killed_voter_reads_cannot_be_lost_any_more() -> None:
    """It was killed after it renamed quorum-state. The name is not on the disk, and the voter
    relies on it from its start on.
    """
    victim, past, _ = await history()
    path = Path(METADATA) / "quorum-state"
    checked = 0
    for point in past.points[victim]:
        if point.effect.kind != "rename" or point.effect.path != str(path):
            continue
        disk = point.disk.fork()
        read, kept = disk.files()[str(path)], durable_content(disk.root, path)
        assert read != kept, "nothing to lose"
        cluster = QuorumCluster(settings=SETTINGS, disks={victim: disk})
        await cluster.start(victim)
        found = durable_content(disk.root, path)
        await cluster.close()
        assert found is not None
        assert decode_election(found).epoch >= decode_election(read).epoch
        checked += 1
    assert checked > 3
