"""The quorum's metrics say what is the case."""

from broker.metadata_node import config
from broker.quorum.quorum_cluster import Member, running_quorum
from support.waiting import until

from moldau.broker.metrics.quorum import quorum_metrics


def measured(member: Member) -> dict[str, float]:
    """By the metric's name without its prefix, and its label."""
    return {
        "".join([sample.name.removeprefix("moldau_quorum_"), *sample.labels.values()]): sample.value
        for metric in quorum_metrics(member.quorum)
        for sample in metric.samples
    }


async def test_leader_follower_and_observer_report_their_states() -> None:
    async with running_quorum() as cluster:
        cluster.add_node(4)
        observer = await cluster.start(4)
        leader = await cluster.commit("first")
        for number in range(9):
            await leader.commit(f"name-{number}")
        await cluster.wait_until_equal()
        end = leader.quorum.last_offset + 1
        of_leader, of_observer = measured(leader), measured(observer)
        follower = cluster.members[leader.id % 3 + 1]
        await until(lambda: measured(follower)["high_watermark"] == end)
        of_follower = measured(follower)
        assert (of_leader["current_stateleader"], of_follower["current_statefollower"]) == (1, 1)
        assert of_observer["current_stateobserver"] == 1
        for each in (of_leader, of_follower, of_observer):
            assert each["current_leader"] == leader.id
            assert each["current_epoch"] == leader.quorum.leader_epoch
            assert each["voters"] == 3
            assert each["log_end_offset"] == each["high_watermark"] == end
            assert each["log_end_epoch"] == leader.quorum.leader_epoch
            assert each["uncommitted_records"] == 0
            assert each["busy_seconds_total"] > 0
        assert of_leader["current_vote"] == leader.id
        assert of_leader["observers"] == 1
        assert of_leader["uncommitted_voter_change"] == 0
        assert "observers" not in of_follower
        # Its own first batch, and ten more.
        assert of_leader["commit_seconds_count"] >= 11
        assert 0 < of_leader["commit_max_seconds"] <= of_leader["commit_seconds_sum"]
        assert of_leader["appended_records_total"] >= 11
        assert of_leader["election_seconds_count"] >= 1
        assert of_leader["election_max_seconds"] > 0
        assert of_observer["fetched_records_total"] == end


async def test_a_voter_without_a_leader_reports_that() -> None:
    async with running_quorum() as cluster:
        leader = await cluster.commit("first")
        others = {1, 2, 3} - {leader.id}
        for number in others:
            await cluster.kill(number)
        leader.quorum.append([config("alone", "value")], 1)
        assert measured(leader)["uncommitted_records"] == 1
        await until(lambda: measured(leader)["current_leader"] == -1)
        found = measured(leader)
        assert found["current_vote"] in {-1, leader.id}
        states = {name for name in found if name.startswith("current_state")}
        assert states <= {
            f"current_state{name}"
            for name in ("resigned", "unattached", "prospective", "prospective-voted", "candidate")
        }
