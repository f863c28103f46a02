"""The active controller stands still for a while, with all its connections open, and continues. No
broker is fenced that sent its heartbeats, and one that dies right after that is fenced in time.
"""

import signal
import time
from functools import partial
from pathlib import Path

import pytest
from support.running_cluster import RunningCluster, running_cluster
from support.running_node import freeze
from support.waiting import keep_for, wait_for
from support.wire_client import WireClient
from system.node.questions import create_topics

from moldau.protocol.messages.describe_cluster import DescribeClusterRequest

CHECKS_PER_SESSION = 8
SLACK_MS = 1_000
"""The processes may wait this long for a processor of a busy machine."""


def session(session_ms: int) -> dict[str, str]:
    return {
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(session_ms // 5),
    }


def freeze_for(cluster: RunningCluster, node_id: int, seconds: float) -> None:
    process = cluster.nodes[node_id].process.process
    assert process is not None
    freeze(process.pid)
    try:
        keep_for(seconds)
    finally:
        process.send_signal(signal.SIGCONT)


def check_fencing(cluster: RunningCluster, dying: int, living: int, session_ms: int) -> None:
    """Right after the pause. `dying` gets one new session, and the next check fences it."""
    assert fenced_brokers(cluster) == set()
    cluster.kill(dying)
    died = time.monotonic()
    wait_for(lambda: fenced_brokers(cluster) == {dying}, f"broker {dying} alone to be fenced")
    elapsed_ms = (time.monotonic() - died) * 1000
    assert elapsed_ms < session_ms + session_ms / CHECKS_PER_SESSION + SLACK_MS
    wait_for(partial(is_fenced, cluster, dying, living), f"broker {living} to replay that")
    assert fenced_brokers(cluster) == {dying}
    with WireClient(cluster.nodes[living].address) as wire:
        ((code, text),) = create_topics(wire, {"afterwards": 1}).values()
        assert code == 0, text


def is_fenced(cluster: RunningCluster, node_id: int, at: int) -> bool:
    with WireClient(cluster.nodes[at].address) as wire:
        answer = wire.ask(DescribeClusterRequest(endpoint_type=1), 1)
    return node_id not in {broker.broker_id for broker in answer.brokers}


def fenced_brokers(cluster: RunningCluster) -> set[int]:
    """Those whose session has expired at any controller."""
    logs = [node.process.errors for node in cluster.controllers]
    return {
        node.node_id
        for node in cluster.brokers
        if any(f"broker {node.node_id} is fenced: its session" in log for log in logs)
    }


def run_alone(folder: Path, session_ms: int, seconds: float) -> None:
    with running_cluster(
        folder, ["controller", "broker", "broker"], session(session_ms)
    ) as cluster:
        cluster.start()
        freeze_for(cluster, 1, seconds)
        check_fencing(cluster, dying=2, living=3, session_ms=session_ms)


def run_among_three(folder: Path, session_ms: int, seconds: float) -> None:
    roles = ["controller"] * 3 + ["broker"] * 2
    with running_cluster(folder, roles, session(session_ms)) as cluster:
        cluster.start()
        frozen = cluster.wait_for_leader()
        freeze_for(cluster, frozen, seconds)
        assert cluster.wait_for_leader(other_than=frozen) != frozen
        check_fencing(cluster, dying=4, living=5, session_ms=session_ms)


def test_a_frozen_controller_without_successor_fences_only_the_dead(tmp_path: Path) -> None:
    run_alone(tmp_path, session_ms=2_500, seconds=6)


@pytest.mark.slow
def test_thirty_seconds_without_a_controller_fence_only_the_dead(tmp_path: Path) -> None:
    """With Kafka's session timeout."""
    run_alone(tmp_path, session_ms=9_000, seconds=30)


@pytest.mark.slow
def test_thirty_seconds_without_the_active_controller_fence_only_the_dead(tmp_path: Path) -> None:
    run_among_three(tmp_path, session_ms=9_000, seconds=30)
