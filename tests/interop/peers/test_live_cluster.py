"""The cluster that other tests use works as they expect."""

import pytest
from interop.peers.live_cluster import BROKER_IDS, LiveCluster
from support.waiting import wait_for

pytestmark = pytest.mark.interop


def test_leaders_move_and_brokers_come_back(apache_cluster: LiveCluster, name: str) -> None:
    apache_cluster.create_topic(name, 3)
    apache_cluster.move_leaders(name, {0: 3, 1: 3, 2: 3})
    apache_cluster.kill(3)
    wait_for(
        lambda: all(row.leader_id in {1, 2} for row in apache_cluster.partitions(name).values()),
        "other leaders",
    )
    assert apache_cluster.coordinator("some-group") in {1, 2}
    apache_cluster.heal()
    rows = apache_cluster.partitions(name)
    assert all(set(row.isr_nodes) == set(BROKER_IDS) for row in rows.values())
    apache_cluster.stop(1)
    assert apache_cluster.alive == [2, 3]
