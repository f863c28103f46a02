"""Clusters of real processes: they form, survive the loss of a controller, and stop."""

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.running_cluster import RunningCluster, running_cluster
from support.running_node import freeze
from support.waiting import wait_for
from support.wire_client import WireClient

from moldau import Admin
from moldau.admin import NewTopic
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)

COMBINED = "broker,controller"


def create(admin: Admin, name: str, replicas: int = 1) -> None:
    made = admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=replicas)])
    assert not isinstance(made[name], Exception), made


def topics_at(cluster: RunningCluster, address: str) -> set[str]:
    with cluster.admin(address) as admin:
        return set(admin.list_topics())


@pytest.mark.parametrize("static_voters", [False, True], ids=["dynamic", "static"])
def test_three_combined_nodes_outlive_their_active_controller(
    tmp_path: Path, static_voters: bool
) -> None:
    quick = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}
    with running_cluster(tmp_path, [COMBINED] * 3, quick, static_voters=static_voters) as cluster:
        cluster.start()
        addresses = [node.address for node in cluster.nodes.values()]
        for number, address in enumerate(addresses):
            with cluster.admin(address) as admin:
                create(admin, f"first-{number}")
                assert f"first-{number}" in set(admin.list_topics()), "read what it wrote"
        quorum = cluster.quorum(addresses[0])
        assert {voter.node_id for voter in quorum.voters} == {1, 2, 3}
        leader = quorum.leader_id
        cluster.kill(leader)
        assert cluster.wait_for_leader(other_than=leader) != leader
        for node in cluster.nodes.values():
            if node.is_running:
                with cluster.admin(node.address) as admin:
                    create(admin, f"second-{node.node_id}")
        cluster.start(leader)
        expected = {f"first-{number}" for number in range(3)}
        expected |= {f"second-{node}" for node in cluster.nodes if node != leader}
        assert topics_at(cluster, cluster.nodes[leader].address) >= expected
        assert cluster.stop(1, 2, 3) == [0, 0, 0]


def test_controllers_and_brokers_start_in_any_order(tmp_path: Path) -> None:
    """Brokers first: they wait for controllers, and the first controller for the second."""
    with running_cluster(tmp_path, ["controller"] * 3 + ["broker"] * 2) as cluster:
        for node_id in (4, 5, 2):
            cluster.nodes[node_id].process.launch()
        # It serves other controllers before there is a leader.
        cluster.wait_ready(2)
        cluster.start(3)
        for node_id in (4, 5):
            cluster.wait_ready(node_id)
        leader = cluster.wait_for_leader()
        assert leader in {2, 3}
        with cluster.admin(cluster.nodes[4].address) as admin:
            create(admin, "t")
            described = admin.describe_cluster()
            assert [broker.node_id for broker in described.brokers] == [4, 5]
        wait_for(lambda: "t" in topics_at(cluster, cluster.nodes[5].address), "the other broker")
        cluster.start(1)
        wait_for(lambda: lag_of(cluster, 1) == 0, "the third controller to follow")
        quorum = cluster.quorum()
        assert {voter.node_id for voter in quorum.voters} == {1, 2, 3}
        assert {observer.node_id for observer in quorum.observers} == {4, 5}
        check_what_controllers_say(cluster, leader)
        shown = shown_quorum(cluster.nodes[5].address)
        assert shown["leaderId"] == leader
        assert sorted(each["nodeId"] for each in shown["observers"]) == [4, 5]
        with cluster.admin() as admin:
            create(admin, "replicated", replicas=2)
        assert cluster.stop(5, 4, 1, 2, 3) == [0] * 5
        for node_id in (4, 5):
            warnings = cluster.nodes[node_id].process.errors
            assert warnings.count("Moldau brokers do not replicate records yet") == 1


def check_what_controllers_say(cluster: RunningCluster, leader: int) -> None:
    """Every controller knows which one is active, and only that one describes the quorum."""
    partitions = [DescribeQuorumRequestPartitionData(partition_index=0)]
    topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=partitions)
    for node in cluster.nodes.values():
        if not node.is_controller:
            continue
        with WireClient(f"127.0.0.1:{node.controller_port}") as wire:
            wait_for(partial(knows_all_controllers, wire, leader), "all controllers to register")
            quorum: Any = wire.ask(DescribeQuorumRequest(topics=[topic]), 2)
            (partition,) = quorum.topics[0].partitions
            is_leader = node.node_id == leader
            code = ErrorCode.NONE if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert partition.error_code == code


def knows_all_controllers(wire: WireClient, leader: int) -> bool:
    found: Any = wire.ask(DescribeClusterRequest(endpoint_type=2), 1)
    assert found.controller_id == leader
    return {each.broker_id for each in found.brokers} == {1, 2, 3}


def shown_quorum(address: str) -> Any:
    command = [sys.executable, "-m", "moldau", "cluster", "quorum", "-b", address, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def lag_of(cluster: RunningCluster, node_id: int) -> int:
    quorum = cluster.quorum()
    ends = {voter.node_id: voter.log_end_offset for voter in quorum.voters}
    return max(quorum.high_watermark - ends[node_id], 0)


def test_a_node_stops_in_bounded_time_without_the_majority(tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with running_cluster(tmp_path, [COMBINED] * 3, settings) as cluster:
        cluster.start()
        cluster.kill(1)
        cluster.kill(2)
        # The process would be killed, and `stop` fail, if it took longer.
        assert cluster.stop(3) == [0]
        assert "controlled shutdown failed" in cluster.nodes[3].process.errors


def test_an_active_controller_that_was_frozen_finds_its_successor(tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": "20000"}
    with running_cluster(tmp_path, [COMBINED] * 3, settings) as cluster:
        cluster.start()
        frozen = cluster.quorum().leader_id
        others = [node for node in cluster.nodes.values() if node.node_id != frozen]
        process = cluster.nodes[frozen].process.process
        assert process is not None
        freeze(process.pid)
        try:
            leader = cluster.wait_for_leader(other_than=frozen, at=others[0].address)
            with cluster.admin(others[1].address) as admin:
                create(admin, "meanwhile")
        finally:
            process.send_signal(signal.SIGCONT)
        with cluster.admin(cluster.nodes[frozen].address) as admin:
            create(admin, "afterwards")
        assert topics_at(cluster, cluster.nodes[frozen].address) >= {"meanwhile", "afterwards"}
        assert cluster.quorum(cluster.nodes[frozen].address).leader_id == leader
        for node in others:
            fenced = f"broker {node.node_id} is fenced"
            assert not any(fenced in each.process.errors for each in cluster.nodes.values())
