"""The process has too many open files: a voter waits for a free descriptor, promises nothing until
then, and takes part again afterwards.
"""

import errno
from pathlib import Path

import pytest
from broker.metadata_node import config
from broker.quorum.quorum_cluster import METADATA, Member, QuorumCluster, running_quorum
from support.waiting import take_turns, until

from moldau.broker.metrics.quorum import quorum_metrics
from moldau.storage.directory.checkpoints import RECOVERY_POINT_FILE
from moldau.testing.simulated_disk import Effect, SimulatedDisk


def too_many() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


def lack_descriptors(disk: SimulatedDisk, kind: str, path: str) -> None:
    """Effects of that kind need one, until `free_descriptors`."""

    def error_of(effect: Effect) -> OSError | None:
        is_lacking = effect.kind == kind and effect.path.startswith(path)
        return too_many() if is_lacking else None

    disk.error_of = error_of


def free_descriptors(disk: SimulatedDisk) -> None:
    disk.error_of = lambda _effect: None


def delayed(member: Member) -> float:
    return next(
        sample.value
        for metric in quorum_metrics(member.quorum)
        for sample in metric.samples
        if sample.name == "moldau_quorum_delayed_writes_total"
    )


@pytest.mark.parametrize(
    ("kind", "path"), [("create", f"{METADATA}/quorum-state"), ("sync_directory", METADATA)]
)
async def test_an_election_waits_for_a_free_descriptor(
    kind: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without this voter there is no majority."""
    async with running_quorum() as cluster:
        leader = await cluster.commit("before")
        await cluster.wait_until_equal()
        lacking = cluster.members[leader.id % 3 + 1]
        stored = lacking.disk.files()[f"{METADATA}/quorum-state"]
        lack_descriptors(lacking.disk, kind, path)
        await cluster.kill(leader.id)
        await until(lambda: delayed(lacking) > 2)
        assert cluster.leader is None
        if kind == "create":
            assert lacking.disk.files()[f"{METADATA}/quorum-state"] == stored
        assert caplog.text.count("the metadata quorum waits for a free file descriptor") == 1
        free_descriptors(lacking.disk)
        await cluster.commit("after")
        await cluster.wait_until_equal()
        assert lacking.values.keys() == {"before", "after"}
        assert [each.failures for each in cluster.members.values()] == [[], []]


async def test_the_others_elect_a_leader_without_a_voter_that_lacks_descriptors() -> None:
    async with running_quorum() as cluster:
        leader = await cluster.commit("before")
        await cluster.wait_until_equal()
        lack_descriptors(leader.disk, "create", f"{METADATA}/quorum-state")
        cluster.isolate(leader.id)
        successor = await cluster.commit("after", not_by=leader.id)
        cluster.heal()
        # It cannot store that there is a later epoch, and serves no one meanwhile.
        await until(lambda: delayed(leader) > 1)
        await successor.commit("more")
        free_descriptors(leader.disk)
        await cluster.wait_until_equal()
        assert leader.values.keys() == {"before", "after", "more"}
        assert leader.failures == []


async def with_records_to_truncate(cluster: QuorumCluster) -> Member:
    """Returns the old leader, which is cut off."""
    old = await cluster.commit("first")
    cluster.isolate(old.id)
    for number in range(20):
        offset = old.quorum.append([config(f"lost-{number}", "x" * 40)], 1)
    await until(lambda: old.quorum.log.flushed_offset > offset)
    old.quorum.store_recovery_point()
    await until(lambda: f"{METADATA}/{RECOVERY_POINT_FILE}" in old.disk.files())
    await cluster.commit("second", not_by=old.id)
    return old


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_truncation_waits_for_a_free_descriptor(is_begun: bool) -> None:
    """Before it lowers the recovery point, or when it syncs the directory."""
    async with running_quorum() as cluster:
        old = await with_records_to_truncate(cluster)
        disk, counted = old.disk, delayed(old)

        def error_of(effect: Effect) -> OSError | None:
            if is_begun:
                # Small files are renamed before such a sync.
                follows_rename = disk.trace[-2].kind == "rename"
                is_lacking = effect.kind == "sync_directory" and not follows_rename
            else:
                name = effect.path.rpartition("/")[2]
                is_lacking = effect.kind == "create" and name.startswith(RECOVERY_POINT_FILE)
            return too_many() if is_lacking else None

        disk.error_of = error_of
        cluster.heal()
        await until(lambda: delayed(old) > counted + 1)
        free_descriptors(disk)
        await cluster.wait_until_equal()
        assert old.values.keys() == {"first", "second"}
        assert old.failures == []
        await cluster.kill(old.id, is_power_cut=True)
        restarted = await cluster.start(old.id)
        await cluster.wait_until_equal()
        assert restarted.values.keys() == {"first", "second"}


async def test_a_node_that_waits_for_a_descriptor_can_stop() -> None:
    async with running_quorum() as cluster:
        leader = await cluster.commit("before")
        await cluster.wait_until_equal()
        lacking = cluster.members[leader.id % 3 + 1]
        lack_descriptors(lacking.disk, "create", f"{METADATA}/quorum-state")
        await cluster.kill(leader.id)
        await until(lambda: delayed(lacking) > 0)
        await cluster.kill(lacking.id)
        assert lacking.failures == []
        await cluster.start(lacking.id)
        await cluster.commit("after")


async def test_committed_records_are_delivered_when_a_descriptor_is_free() -> None:
    async with running_quorum() as cluster:
        leader = await cluster.wait_for_leader()
        late = leader.id % 3 + 1
        await cluster.kill(late)
        for number in range(30):
            await leader.commit(f"name-{number}")
        disk, failed = cluster.disks[late], []

        def fail(path: Path) -> None:
            failed.append(path)
            raise too_many()

        restarted = await cluster.start(late)
        disk.is_cold = lambda path: path.name.endswith(".log")
        disk.wait_for_disk = fail
        await until(lambda: len(failed) > 1)
        await take_turns()
        assert restarted.failures == []
        disk.is_cold = lambda _path: False
        await cluster.wait_until_equal()
        assert restarted.values == leader.values
