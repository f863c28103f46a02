"""Quorums of one voter, Apache's or ours, that get voters of the other kind and lose them again, by
Apache's tool. The new ones begin with a snapshot, since the log was cleaned.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from interop.apache import ApacheOracle
from interop.mixed_cluster import APACHE, CONTROLLER, MOLDAU, MixedCluster
from interop.mixed_tools import MixedTools
from interop.peers.java_tools import QUORUM
from support.waiting import wait_for

pytestmark = pytest.mark.interop

VOTERS = {"apache": (APACHE, MOLDAU, APACHE), "moldau": (MOLDAU, APACHE, MOLDAU)}
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "internal.metadata.log.segment.bytes": "3000",
    "metadata.max.retention.bytes": "9000",
    "internal.metadata.delete.delay.millis": "0",
    "metadata.max.idle.interval.ms": "0",
}
# A node cleans its log once a minute.
CLEANING_S = 120.0
FIRST_SEGMENT = "00000000000000000000.log"


@pytest.fixture(scope="module")
def quorums(
    apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, MixedTools]]:
    """Of one voter each, by its kind. Their logs begin at a snapshot."""
    with ExitStack() as stack:
        found = {}
        for name, kinds in VOTERS.items():
            nodes = {node_id: (kind, CONTROLLER) for node_id, kind in enumerate(kinds, 1)}
            folder = tmp_path_factory.mktemp(name)
            cluster = stack.enter_context(MixedCluster(apache, folder, nodes, SETTINGS, voters=[1]))
            cluster.format()
            cluster.start(1)
            for _ in range(150):
                cluster.commit()
            found[name] = MixedTools(apache, cluster)
        for tools in found.values():
            wait_for(partial(is_cut, tools.cluster, 1), "a clean log", CLEANING_S)
        yield found


def is_cut(cluster: MixedCluster, node_id: int) -> bool:
    """Whether the log no longer has its first records."""
    return not (cluster.nodes[node_id].metadata_log / FIRST_SEGMENT).exists()


@pytest.mark.parametrize("leader", VOTERS)
def test_a_quorum_grows_from_a_snapshot_and_shrinks(
    quorums: dict[str, MixedTools], leader: str
) -> None:
    tools = quorums[leader]
    cluster = tools.cluster
    cluster.start(2, 3)
    assert is_cut(cluster, 2)
    assert is_cut(cluster, 3)
    tools.check_descriptions()
    for node_id in (2, 3):
        add(tools, node_id)
        cluster.commit()
    assert cluster.voters == {1, 2, 3}
    tools.check_descriptions()
    tools.check_logs()
    # Any two commit.
    cluster.freeze(3)
    cluster.commit()
    cluster.thaw(3)
    remove(tools, 3)
    cluster.commit()
    tools.check_descriptions()
    # The leader removes itself: the other kind leads, and takes it back.
    remove(tools, 1)
    assert cluster.wait_for_leader(other_than=1) == 2
    assert cluster.voters == {2}
    tools.check_descriptions()
    add(tools, 1)
    add(tools, 3)
    assert cluster.voters == {1, 2, 3}
    cluster.commit()
    tools.check_descriptions()
    for node_id in (3, 1):
        remove(tools, node_id)
    assert cluster.voters == {2}
    cluster.commit()
    tools.check_descriptions()
    tools.check_logs()


def add(tools: MixedTools, node_id: int) -> None:
    """At the leader, which knows how far the node is."""
    cluster = tools.cluster
    properties = str(cluster.nodes[node_id].properties)
    leader = cluster.wait_for_leader()
    output = tools.run(leader, QUORUM, "--command-config", properties, "add-controller")
    assert f"controller {node_id} with directory id {cluster.directory_id(node_id)}" in output


def remove(tools: MixedTools, node_id: int) -> None:
    cluster = tools.cluster
    directory_id = cluster.directory_id(node_id)
    leader = cluster.wait_for_leader()
    options = ["--controller-id", str(node_id), "--controller-directory-id", directory_id]
    output = tools.run(leader, QUORUM, "remove-controller", *options)
    assert f"controller {node_id} with directory id {directory_id}" in output
