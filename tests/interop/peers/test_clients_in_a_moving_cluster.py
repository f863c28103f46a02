"""Our clients while leaders move and brokers die: no acknowledged record is lost or duplicated, the
order of each partition is kept, calls respect their timeouts, and no thread or socket is left over.
"""

from collections.abc import Callable, Iterator

import pytest
from interop.peers.live_cluster import BROKER_IDS, LiveCluster
from interop.peers.traffic import Traffic, nothing_stays
from support.waiting import wait_for

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    with nothing_stays():
        yield


def move_all_leaders(cluster: LiveCluster, topic: str) -> None:
    for turn in range(6):
        leaders = {number: BROKER_IDS[(number + turn + 1) % 3] for number in range(3)}
        cluster.move_leaders(topic, leaders)


def move_all_leaders_to_one(cluster: LiveCluster, topic: str) -> None:
    for leader in (2, 1, 3):
        cluster.move_leaders(topic, dict.fromkeys(range(3), leader))


def kill_one_and_restart_it(cluster: LiveCluster, topic: str) -> None:
    for victim in (1, 3):
        cluster.kill(victim)
        wait_for(lambda gone=victim: _leads_nothing(cluster, topic, gone), "other leaders")  # type: ignore[misc]
        cluster.heal()
    cluster.move_leaders(topic, {0: 1, 1: 2, 2: 3})


def stop_one_and_restart_it(cluster: LiveCluster, topic: str) -> None:
    for victim in BROKER_IDS:
        cluster.stop(victim)
        cluster.heal()
        cluster.move_leaders(topic, {0: 1, 1: 2, 2: 3})


def bring_one_back_elsewhere(cluster: LiveCluster, topic: str) -> None:
    cluster.change_ports(2)
    cluster.move_leaders(topic, dict.fromkeys(range(3), 2))


def freeze_one(cluster: LiveCluster, topic: str) -> None:
    """Its connections stay open, but no request is answered."""
    cluster.freeze(2)
    wait_for(lambda: _leads_nothing(cluster, topic, 2, broker_id=1), "other leaders")
    cluster.thaw(2)
    cluster.heal()


def _leads_nothing(
    cluster: LiveCluster, topic: str, broker: int, broker_id: int | None = None
) -> bool:
    rows = cluster.partitions(topic, broker_id)
    return bool(rows) and all(row.leader_id not in {broker, -1} for row in rows.values())


DISTURBANCES = [
    move_all_leaders,
    move_all_leaders_to_one,
    kill_one_and_restart_it,
    stop_one_and_restart_it,
    bring_one_back_elsewhere,
    freeze_one,
]


@pytest.mark.parametrize("disturb", DISTURBANCES)
@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_records_keep_flowing(
    apache_cluster: LiveCluster,
    name: str,
    disturb: Callable[[LiveCluster, str], None],
    face: str,
) -> None:
    apache_cluster.create_topic(name, 3)
    traffic = Traffic(apache_cluster, name)
    run = traffic.run if face == "blocking" else traffic.run_in_loops
    # A frozen broker is given up after a request has waited this long.
    run(lambda: disturb(apache_cluster, name), request_timeout_ms=5_000)
