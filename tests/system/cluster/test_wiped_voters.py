"""A controller that lost its directory returns: the others have cleaned the beginning of their log,
so it gets a snapshot. After that the quorum can rely on it.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from support.running_cluster import RunningCluster, running_cluster
from support.waiting import wait_for
from support.wire_client import WireClient
from system.cluster.admin_load import Quorum, active_controller
from system.node.questions import create_topics, topics_of

BROKER = 4
CLEANED = {
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "internal.metadata.log.segment.bytes": "1500",
    "metadata.max.retention.bytes": "3000",
    "metadata.max.idle.interval.ms": "100",
}


class WipedVoter:
    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster
        self.topics: list[str] = []

    def create_topic(self) -> None:
        name = f"topic-{len(self.topics)}"
        with WireClient(self.cluster.nodes[BROKER].address) as wire:
            ((code, text),) = create_topics(wire, {name: 1}).values()
        assert code == 0, text
        self.topics.append(name)

    def metadata_files(self, node_id: int, ending: str) -> list[str]:
        folder = self.cluster.nodes[node_id].process.log_folder / "__cluster_metadata-0"
        return sorted(path.name for path in folder.glob(f"*{ending}"))

    def starts_at_zero(self, node_id: int) -> bool:
        return f"{0:020}.log" in self.metadata_files(node_id, ".log")

    def quorum(self) -> Quorum:
        found = active_controller(self.cluster)
        assert found is not None
        return found

    def wait_caught_up(self, node_id: int) -> None:
        """As a voter."""

        def is_caught_up() -> bool:
            found = active_controller(self.cluster)
            return found is not None and found.ends.get(node_id, -1) >= found.high_watermark >= 0

        wait_for(is_caught_up, f"node {node_id} to have the committed records")


def is_returned_as_written(run: WipedVoter) -> bool:
    with WireClient(run.cluster.nodes[BROKER].address) as wire:
        return set(topics_of(wire)) == set(run.topics)


@pytest.mark.parametrize(
    "kind",
    [
        "static",
        pytest.param("dynamic", marks=pytest.mark.slow),
        pytest.param("replaced", marks=pytest.mark.slow),
    ],
)
def test_a_wiped_voter_returns_by_a_snapshot(tmp_path: Path, kind: str) -> None:
    """`dynamic` has the directory id that the voters name; `replaced` has a new one, and takes the
    place of the lost voter itself (KIP-1186).
    """
    roles = ["controller"] * 3 + ["broker"]
    with running_cluster(tmp_path, roles, CLEANED, static_voters=kind == "static") as cluster:
        if kind == "replaced":
            for node in cluster.controllers:
                cluster.configure(node.node_id, joining(CLEANED))
        cluster.start()
        run = WipedVoter(cluster)
        run.create_topic()
        leader = cluster.wait_for_leader()
        wiped = leader % 3 + 1
        cluster.kill(wiped)
        cluster.wipe(wiped)
        while run.starts_at_zero(leader):
            run.create_topic()
        cluster.format(wiped, is_new_voter=kind == "replaced")
        cluster.start(wiped)
        run.wait_caught_up(wiped)
        assert not run.starts_at_zero(wiped)
        assert run.metadata_files(wiped, ".checkpoint")
        check_directory_id(run, wiped, is_new=kind == "replaced")
        # The other two are a majority only with the voter that returned.
        cluster.kill(leader)
        cluster.wait_for_leader(other_than=leader)
        run.create_topic()
        cluster.start(leader)
        run.wait_caught_up(leader)
        run.create_topic()
        wait_for(partial(is_returned_as_written, run), "all topics at the broker")


def joining(settings: Mapping[str, str]) -> dict[str, str]:
    return {**settings, "controller.quorum.auto.join.enable": "true"}


def check_directory_id(run: WipedVoter, node_id: int, *, is_new: bool) -> None:
    quorum = run.cluster.quorum()
    assert sorted(voter.node_id for voter in quorum.voters) == [1, 2, 3]
    (directory_id,) = (each.directory_id for each in quorum.voters if each.node_id == node_id)
    if not run.cluster.has_static_voters:
        expected = bytes(run.cluster.nodes[node_id].directory_id)
        assert (directory_id != expected) == is_new
