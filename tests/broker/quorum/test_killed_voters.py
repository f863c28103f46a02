"""A voter of a working quorum loses its power at any of its effects, in the middle of elections,
appends and truncations, and returns at once. The quorum continues; no voter votes twice in an
epoch, no epoch has two leaders, and no committed record is lost (I7 to I9).
"""

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from broker.metadata_node import config
from broker.quorum.quorum_cluster import METADATA, QuorumCluster
from support.waiting import until

from moldau.core.quorum.rpc import (
    BeginQuorumEpochRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.checkpoints import RECOVERY_POINT_FILE
from moldau.testing.simulated_disk import Effect, SimulatedDisk

STATE = re.escape(f"{METADATA}/quorum-state")
RECOVERY = re.escape(f"{METADATA}/{RECOVERY_POINT_FILE}")
LOG = re.escape(METADATA) + r"/\d+\.log"
# Right after these effects the next ones of the same step are missing.
MOMENTS = {
    "an election state was begun": ("create", STATE + r"\.tmp"),
    "an election state was synced and has no name": ("sync", STATE + r"\.tmp"),
    "an election state has its name": ("rename", STATE),
    "records were appended and not flushed": ("append", LOG),
    "records were flushed": ("sync", LOG),
    "the recovery point was lowered": ("rename", RECOVERY),
    "the log was truncated": ("truncate", LOG),
}

# Elections begin soon.
IMPATIENT = {
    "controller.quorum.fetch.timeout.ms": "400",
    "controller.quorum.request.timeout.ms": "400",
}

IsMoment = Callable[[Effect], bool]


@dataclass
class Claims:
    """Votes and leaderships that the nodes have announced, in all their lives."""

    votes: dict[tuple[int, int], int] = field(default_factory=dict)
    """Node and epoch -> its candidate."""
    leaders: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def watch(self, cluster: QuorumCluster) -> None:
        cluster.on_sent, cluster.on_response = self._sent, self._responded

    def _sent(self, sender: int, request: Request) -> None:
        if isinstance(request, VoteRequest) and not request.is_pre_vote:
            self._vote(sender, request.epoch, sender)
        elif isinstance(request, BeginQuorumEpochRequest):
            known = self.leaders.setdefault(request.epoch, sender)
            self._note(known == sender, f"{known} and {sender} lead epoch {request.epoch}")
            self._epoch(sender, request.epoch)

    def _responded(self, node: int, request: Request, response: Response) -> None:
        if isinstance(response, VoteResponse):
            assert isinstance(request, VoteRequest)
            self._epoch(node, response.leadership.epoch)
            if response.is_granted and not request.is_pre_vote:
                self._vote(node, request.epoch, request.candidate.node_id)

    def _vote(self, node: int, epoch: int, candidate: int) -> None:
        known = self.votes.setdefault((node, epoch), candidate)
        self._note(known == candidate, f"{node} votes for {known} and {candidate} in epoch {epoch}")
        self._epoch(node, epoch)

    def _epoch(self, node: int, epoch: int) -> None:
        known = self.epochs.get(node, 0)
        self._note(epoch >= known, f"the epoch of {node} fell from {known} to {epoch}")
        self.epochs[node] = max(known, epoch)

    def _note(self, holds: bool, problem: str) -> None:
        if not holds:
            self.broken.append(problem)


class Fate:
    """The victim's power fails after one of its effects; then it starts again."""

    def __init__(self, cluster: QuorumCluster, victim: int, chance: Random) -> None:
        self.effect: Effect | None = None
        """The last one before the failure."""
        self.has_returned = asyncio.Event()
        self._cluster = cluster
        self._victim = victim
        self._chance = chance
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._disk = cluster.members[victim].disk
        self._left: SimulatedDisk | None = None
        self._is_over = False

    def strike(self, is_moment: IsMoment) -> None:
        def look(effect: Effect) -> None:
            if self._left is None and not self._is_over and is_moment(effect):
                # Nothing that the node does from here on has an effect, in whatever thread it is.
                self._left = self._disk.fork()
                self._cluster.faults.dead.add(self._victim)
                self.effect = effect
                self._loop.call_soon_threadsafe(self._begin_restart)

        self._disk.on_effect(look)

    def _begin_restart(self) -> None:
        _ = self._tasks.start(self._restart(), "restart the victim")

    async def _restart(self) -> None:
        assert self._left is not None
        await self._cluster.kill(self._victim)
        any_subset = self._chance.random() < 0.5
        self._cluster.disks[self._victim] = self._left.crash(self._chance, any_subset=any_subset)
        self._cluster.faults.dead.clear()
        await self._cluster.start(self._victim)
        self.has_returned.set()

    async def end(self) -> None:
        """If it was struck, it is back. It is not struck any more."""
        self._is_over = True
        if self.effect is not None:
            await self.has_returned.wait()
        await self._tasks.close()


class Story:
    """Elections, appends and truncations. Knows which records were acknowledged."""

    def __init__(self, cluster: QuorumCluster) -> None:
        self.acknowledged: set[str] = set()
        self._cluster = cluster

    async def commit(self, count: int, *, not_by: int | None = None) -> int:
        """Returns the last leader."""
        return [await self._commit_next(not_by) for _ in range(count)][-1]

    async def _commit_next(self, not_by: int | None) -> int:
        name = f"kept-{len(self.acknowledged)}"
        leader = await self._commit(name, not_by)
        self.acknowledged.add(name)
        return leader

    async def _commit(self, name: str, not_by: int | None) -> int:
        cluster = self._cluster
        while True:
            leader = await cluster.wait_for_leader(other_than=not_by)
            with contextlib.suppress(KafkaError):
                await leader.commit(name)
                if leader.id not in cluster.faults.dead and cluster.members.get(leader.id):
                    return leader.id

    async def replace_leader(self) -> None:
        """The old one has records that it must drop when it returns."""
        cluster = self._cluster
        old = await cluster.wait_for_leader()
        cluster.isolate(old.id)
        with contextlib.suppress(KafkaError):
            for number in range(5):
                old.quorum.append([config(f"lost-{number}", "x" * 40)], 1)
            end = old.quorum.last_offset
            await until(
                lambda: (
                    old.quorum.log.flushed_offset > end or cluster.members.get(old.id) is not old
                )
            )
            old.quorum.store_recovery_point()
        await self.commit(2, not_by=old.id)
        cluster.heal()
        await self.commit(2)


async def judge(is_moment: Callable[[], IsMoment], *, leads: bool, seed: int) -> Effect | None:
    """Returns the victim's last effect; None if the moment did not come. `leads`: the victim is the
    first leader, or else one of the others.
    """
    cluster, claims = QuorumCluster(settings=IMPATIENT, seed=seed), Claims()
    claims.watch(cluster)
    try:
        await cluster.start_all()
        story = Story(cluster)
        leader = await story.commit(3)
        await cluster.wait_until_equal()
        fate = Fate(cluster, leader if leads else leader % 3 + 1, Random(seed))
        fate.strike(is_moment())
        await story.replace_leader()
        await story.replace_leader()
        await fate.end()
        await story.commit(1)
        await cluster.wait_until_equal()
        values = [member.values.keys() for member in cluster.members.values()]
        assert values[0] == values[1] == values[2]
        assert values[0] >= story.acknowledged
        assert cluster.files(1) == cluster.files(2) == cluster.files(3)
        assert claims.broken == []
        assert [member.failures for member in cluster.members.values()] == [[], [], []]
        effect = fate.effect
    except (Exception, asyncio.CancelledError) as error:
        raise AssertionError(f"seed {seed}: {claims.broken}") from error
    finally:
        await cluster.close()
    return effect


def at_moment(name: str, occurrence: int = 1) -> Callable[[], IsMoment]:
    kind, pattern = MOMENTS[name]

    def new() -> IsMoment:
        left = occurrence

        def is_moment(effect: Effect) -> bool:
            nonlocal left
            left -= effect.kind == kind and re.fullmatch(pattern, effect.path) is not None
            return left == 0

        return is_moment

    return new


def at_number(number: int) -> Callable[[], IsMoment]:
    """After that many effects."""

    def new() -> IsMoment:
        left = number

        def is_moment(_effect: Effect) -> bool:
            nonlocal left
            left -= 1
            return left == 0

        return is_moment

    return new


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("moment", list(MOMENTS))
async def test_a_voter_that_loses_power_there_breaks_no_promise(moment: str, leads: bool) -> None:
    effect = await judge(at_moment(moment), leads=leads, seed=len(moment))
    # Only the first leader is sure to truncate its log.
    assert effect is not None or not leads


@pytest.mark.slow
@pytest.mark.parametrize("leads", [True, False])
async def test_a_voter_that_loses_power_after_any_effect_breaks_no_promise(leads: bool) -> None:
    number, seen = 1, set[str]()
    while (effect := await judge(at_number(number), leads=leads, seed=number)) is not None:
        seen.add(effect.kind)
        number += 1
    assert number > 30
    assert seen >= {"create", "append", "sync", "rename", "sync_directory"}
