"""The times and sizes of the quorum follow the settings."""

from broker.quorum.quorum_cluster import (
    Member,
    QuorumCluster,
    finish_by_time,
    running_quorum,
)
from support.proofs import proves
from support.waiting import take_turns, until

from moldau.core.quorum.rpc import FetchRequest, FetchResponse, Request, Response, VoteRequest

# Nothing else happens before the time that a test looks at.
PATIENT = {
    "controller.quorum.fetch.timeout.ms": "10000000",
    "controller.quorum.request.timeout.ms": "10000000",
    "controller.quorum.election.timeout.ms": "10000000",
}


async def advance(cluster: QuorumCluster, ms: int) -> None:
    for member in cluster.members.values():
        member.clock.advance(ms)
    await take_turns()


class Sent:
    """The requests that leave a node, arrived or not."""

    def __init__(self, cluster: QuorumCluster) -> None:
        self._all: list[tuple[int, Request]] = []
        cluster.on_sent = lambda sender, request: self._all.append((sender, request))

    def count(self, kind: type[Request], sender: int) -> int:
        return sum(each == sender and isinstance(request, kind) for each, request in self._all)


@proves("controller.quorum.election.timeout.ms")
async def test_voters_without_a_leader_wait_for_the_election_timeout() -> None:
    settings = {"controller.quorum.election.timeout.ms": "100000"}
    async with running_quorum(settings=settings) as cluster:
        sent = Sent(cluster)
        await advance(cluster, 75_000)
        assert sum(sent.count(VoteRequest, number) for number in (1, 2, 3)) == 0
        # A vote may be split.
        while cluster.leader is None:
            await advance(cluster, 5_000)


@proves("controller.quorum.fetch.timeout.ms")
async def test_a_follower_that_cannot_fetch_stands_after_the_fetch_timeout() -> None:
    settings = {"controller.quorum.fetch.timeout.ms": "100000"}
    async with running_quorum(settings=settings) as cluster:
        follower = await silent_follower(cluster)
        sent = Sent(cluster)
        await advance(cluster, 75_000)
        assert sent.count(VoteRequest, follower.id) == 0
        await advance(cluster, 26_000)
        await until(lambda: sent.count(VoteRequest, follower.id) > 0)


@proves("controller.quorum.request.timeout.ms")
async def test_a_request_without_a_response_is_given_up_after_its_time() -> None:
    settings = {
        "controller.quorum.fetch.timeout.ms": "10000000",
        "controller.quorum.request.timeout.ms": "100000",
    }
    async with running_quorum(settings=settings) as cluster:
        follower = await silent_follower(cluster)
        sent = Sent(cluster)
        await advance(cluster, 75_000)
        assert sent.count(FetchRequest, follower.id) == 0
        await advance(cluster, 26_000)
        await until(lambda: sent.count(FetchRequest, follower.id) > 0)


async def silent_follower(cluster: QuorumCluster) -> Member:
    """The response to its last fetch from the leader will be lost."""
    leader = await cluster.wait_for_leader()
    follower = cluster.members[leader.id % 3 + 1]
    await leader.commit("all follow")
    await cluster.wait_until_equal()
    await take_turns()
    cluster.isolate(follower.id)
    return follower


@proves("controller.quorum.retry.backoff.ms")
async def test_a_node_that_cannot_be_reached_is_tried_again_after_the_backoff() -> None:
    settings = {**PATIENT, "controller.quorum.retry.backoff.ms": "100000"}
    cluster = QuorumCluster(settings=settings)
    sent = Sent(cluster)
    try:
        await cluster.start(1)
        await until(lambda: sent.count(FetchRequest, 1) == 2)
        await advance(cluster, 70_000)
        assert sent.count(FetchRequest, 1) == 2
        await advance(cluster, 31_000)
        await until(lambda: sent.count(FetchRequest, 1) > 2)
    finally:
        await cluster.close()


@proves("controller.quorum.election.backoff.max.ms")
async def test_the_second_best_successor_lets_the_best_try_first() -> None:
    settings = {
        "controller.quorum.fetch.timeout.ms": "10000000",
        "controller.quorum.election.backoff.max.ms": "100000",
    }
    async with running_quorum(settings=settings) as cluster:
        leader = await cluster.wait_for_leader()
        await leader.commit("all follow")
        await cluster.wait_until_equal()
        best, second = sorted({1, 2, 3} - {leader.id})
        # It never gets to know that it should try.
        cluster.isolate(best)
        sent = Sent(cluster)
        await finish_by_time(leader.clock, cluster.stop(leader.id))
        await advance(cluster, 30_000)
        assert sent.count(VoteRequest, second) == 0
        await advance(cluster, 21_000)
        await until(lambda: sent.count(VoteRequest, second) > 0)


@proves("controller.quorum.fetch.max.bytes")
async def test_a_fetch_returns_no_more_than_its_setting() -> None:
    settings = {"controller.quorum.fetch.max.bytes": "1000"}
    async with running_quorum(settings=settings) as cluster:
        leader = await cluster.wait_for_leader()
        late = leader.id % 3 + 1
        await cluster.kill(late)
        for number in range(50):
            await leader.commit(f"name-{number}", "x" * 100)
        sizes: list[int] = []

        def measure(_request: Request, response: Response) -> Response:
            if isinstance(response, FetchResponse) and response.records:
                sizes.append(len(response.records))
            return response

        cluster.faults.change = measure
        await cluster.start(late)
        await cluster.wait_until_equal()
        assert 500 < max(sizes) <= 1000
        assert sum(sizes) > 5_000


@proves("controller.quorum.auto.join.enable")
async def test_a_controller_joins_by_itself_if_it_may() -> None:
    async with running_quorum(voters=1) as cluster:
        leader = await cluster.wait_for_leader()
        await leader.commit("before")
        cluster.add_node(2)
        cluster.add_node(3)
        observer = await cluster.start(2)
        joining = await cluster.start(3, {"controller.quorum.auto.join.enable": "true"})
        await until(lambda: joining.quorum.is_voter)
        await cluster.wait_until_equal()
        assert not observer.quorum.is_voter
        assert leader.quorum.voters.by_id.keys() == {1, 3}
