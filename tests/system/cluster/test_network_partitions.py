"""Partitions between controllers, in both directions or in one: packets vanish, and connections
stay open. Needs network namespaces.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.namespaces import Network, network, skip_without_namespaces
from support.running_cluster import RunningCluster, running_cluster
from support.waiting import wait_for
from support.wire_client import WireClient
from system.cluster.admin_load import Quorum, active_controller, led_quorum
from system.cluster.final_views import check_equal_logs
from system.node.questions import create_topics, create_topics_request, topics_of

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode

CONTROLLERS, BROKER = (1, 2, 3), 4
_CHECK_QUORUM_S = 3.0
"""After which a leader resigns without a majority: one and a half of the fetch timeout."""
# What a busy machine may take longer.
_SLACK_S = 10.0
_TRIALS = 2
"""Elections that a node that cannot reach the leader tries to win before a test is content."""
_QUICK = {"controller.quorum.fetch.timeout.ms": "1000"}


@dataclass
class Partitioned:
    cluster: RunningCluster
    net: Network
    topics: list[str] = field(default_factory=list)

    def create_topic(self) -> None:
        """Through the broker, which all controllers reach."""
        name = f"topic-{len(self.topics)}"
        with WireClient(self.cluster.nodes[BROKER].address) as wire:
            ((code, text),) = create_topics(wire, {name: 1}).values()
        assert code == 0, (name, text)
        self.topics.append(name)

    def quorum_at(self, node_id: int) -> Quorum | None:
        """None unless the node is the active controller, as far as it knows."""
        with WireClient(self.cluster.nodes[node_id].controller_address) as wire:
            return led_quorum(wire)

    def wait_active(self, *among: int) -> Quorum:
        found: list[Quorum] = []

        def is_led() -> bool:
            for node_id in among:
                quorum = self.quorum_at(node_id)
                if quorum is not None and quorum.high_watermark >= 0:
                    found.append(quorum)
            return bool(found)

        wait_for(is_led, f"an active controller among {among}")
        return found[-1]

    def wait_caught_up(self, node_id: int) -> None:
        def is_caught_up() -> bool:
            found = active_controller(self.cluster)
            return found is not None and found.ends[node_id] >= found.high_watermark

        wait_for(is_caught_up, f"node {node_id} to follow")

    def trials(self, node_id: int) -> int:
        """How often the node has asked for votes."""
        return self.cluster.nodes[node_id].process.errors.count("prospective in epoch")

    def wait_for_trials(self, node_id: int) -> None:
        wanted = self.trials(node_id) + _TRIALS
        wait_for(lambda: self.trials(node_id) >= wanted, f"node {node_id} to stand for election")

    def check_everything(self) -> None:
        """All nodes have what was acknowledged, and nothing else."""
        for node_id in CONTROLLERS:
            self.wait_caught_up(node_id)
        quorum = self.wait_active(*CONTROLLERS)
        with WireClient(self.cluster.nodes[BROKER].address) as wire:
            wait_for(lambda: set(topics_of(wire)) == set(self.topics), "the topics at the broker")
        check_equal_logs(self.cluster, CONTROLLERS, quorum.high_watermark)


@contextmanager
def partitioned(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Partitioned]:
    skip_without_namespaces()
    roles = ["controller"] * len(CONTROLLERS) + ["broker"]
    with (
        network([*CONTROLLERS, BROKER]) as net,
        running_cluster(folder, roles, settings, network=net) as cluster,
    ):
        for node in cluster.nodes.values():
            # With the roles of the quorum's nodes.
            node.process.options += ("--log-level=debug",)
        cluster.start()
        run = Partitioned(cluster, net)
        run.create_topic()
        try:
            yield run
        except AssertionError as error:
            for node in cluster.nodes.values():
                error.add_note(f"node {node.node_id}:\n{node.process.errors[-3000:]}")
            raise


def test_an_active_controller_that_is_cut_off_resigns_and_loses_nothing(tmp_path: Path) -> None:
    with partitioned(tmp_path) as run:
        before = run.wait_active(*CONTROLLERS)
        cut_off = before.leader_id
        others = [each for each in CONTROLLERS if each != cut_off]
        run.net.isolate([cut_off], others)
        begun = time.monotonic()
        with WireClient(run.cluster.nodes[cut_off].controller_address) as wire:
            # It cannot commit this.
            wire.send(create_topics_request({"lost": 1}))
            wait_for(lambda: run.quorum_at(cut_off) is None, "the resignation")
            assert time.monotonic() - begun < _CHECK_QUORUM_S + _SLACK_S
            _, answer = wire.receive(ApiKey.CREATE_TOPICS, create_topics_request({}).VERSIONS[1])
            (refused,) = answer.topics
            # The next leader might have had it.
            assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
        after = run.wait_active(*others)
        run.create_topic()
        # It asks for votes, which cannot disturb the others.
        run.wait_for_trials(cut_off)
        assert run.wait_active(*others)[:2] == after[:2]
        run.net.heal()
        run.create_topic()
        run.wait_caught_up(cut_off)
        assert run.wait_active(*CONTROLLERS)[:2] == after[:2]
        run.check_everything()


@pytest.mark.parametrize(
    "direction",
    ["from the leader", pytest.param("to the leader", marks=pytest.mark.slow)],
)
def test_a_follower_that_the_leader_reaches_in_one_direction_does_not_disturb(
    tmp_path: Path, direction: str
) -> None:
    with partitioned(tmp_path, _QUICK) as run:
        before = run.wait_active(*CONTROLLERS)
        leader = before.leader_id
        follower = leader % 3 + 1
        if direction == "from the leader":
            run.net.drop([leader], [follower])
        else:
            run.net.drop([follower], [leader])
        run.wait_for_trials(follower)
        run.create_topic()
        assert run.wait_active(*CONTROLLERS)[:2] == before[:2]
        run.net.heal()
        run.wait_caught_up(follower)
        assert run.wait_active(*CONTROLLERS)[:2] == before[:2]
        run.check_everything()


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["from the leader", "to the leader"])
def test_a_leader_that_is_cut_off_in_one_direction_is_replaced_once(
    tmp_path: Path, direction: str
) -> None:
    with partitioned(tmp_path, _QUICK) as run:
        cut_off = run.wait_active(*CONTROLLERS).leader_id
        others = [each for each in CONTROLLERS if each != cut_off]
        if direction == "from the leader":
            run.net.drop([cut_off], others)
        else:
            run.net.drop(others, [cut_off])
        wait_for(lambda: run.quorum_at(cut_off) is None, "the resignation")
        after = run.wait_active(*others)
        run.create_topic()
        run.wait_for_trials(cut_off)
        assert run.wait_active(*others)[:2] == after[:2]
        run.net.heal()
        run.wait_caught_up(cut_off)
        assert run.wait_active(*CONTROLLERS)[:2] == after[:2]
        run.check_everything()


@pytest.mark.slow
def test_a_broker_that_cannot_reach_the_active_controller_is_fenced_until_it_can(
    tmp_path: Path,
) -> None:
    """It keeps its metadata, and serves again afterwards."""
    with partitioned(tmp_path) as run:
        leader = run.wait_active(*CONTROLLERS).leader_id
        run.net.drop([BROKER], [leader])
        process = run.cluster.nodes[leader].process
        wait_for(lambda: f"broker {BROKER} is fenced" in process.errors, "the broker to be fenced")
        assert run.wait_active(*CONTROLLERS).leader_id == leader
        run.net.heal()
        with WireClient(run.cluster.nodes[BROKER].address) as wire:
            # In the meantime no broker may hold a replica.
            wait_for(
                lambda: create_topics(wire, {"again": 1})["again"][0] == ErrorCode.NONE,
                "the broker to be unfenced",
            )
        run.topics.append("again")
        run.check_everything()
