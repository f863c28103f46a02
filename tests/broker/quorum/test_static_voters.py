"""Voters in the settings, which the log knows only after kraft.version was raised."""

import errno
from pathlib import Path

import pytest
from broker.metadata_node import CLUSTER, bootstrapped, config_for, running, topic
from support.proofs import proves

from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.core.quorum.machine import VotersError
from moldau.net.chance import SYSTEM_CHANCE, random_uuid
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import ZERO_UUID, uuid_text

METADATA = "__cluster_metadata-0"
ANYWHERE = Path("/data")


@proves("controller.quorum.voters")
async def test_static_voters_need_no_voters_in_the_log(tmp_path: Path) -> None:
    settings = {"controller.quorum.voters": "1@127.0.0.1:9093"}
    options = FormatOptions(cluster_id=CLUSTER)
    format_node(DiskFileSystem(), config_for(tmp_path, settings), options, 1)
    assert not (tmp_path / METADATA).exists()
    for epoch in (1, 2):
        async with running(tmp_path, settings) as node:
            assert node.quorum.kraft_version == 0
            assert node.quorum.leader_epoch == epoch
            assert node.listener.batches[0].last_offset == 0  # the leader, and nothing else
            assert (
                '"currentVoters":[{"voterId":1}]'
                in (tmp_path / METADATA / "quorum-state").read_text()
            )


STATIC = {"controller.quorum.voters": "1@127.0.0.1:9093"}


def formatted_with_static_voters(path: Path, disk: FileSystem | None = None) -> None:
    options = FormatOptions(cluster_id=CLUSTER)
    format_node(disk or DiskFileSystem(), config_for(path, STATIC), options, 1)


async def test_raising_kraft_version_writes_the_voters(tmp_path: Path) -> None:
    formatted_with_static_voters(tmp_path)
    async with running(tmp_path, STATIC) as node:
        await bootstrapped(node)
        node.quorum.raise_kraft_version(1)
        await node.commit(topic("a"))
        raised = node.quorum.describe()
        assert raised.voters[0].key.directory_id == node.directory.meta.directory_id
    # The voters in the settings, or their absence, do not matter from now on.
    both = {"controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9094"}
    for settings in (STATIC, {}, both):
        async with running(tmp_path, settings) as node:
            assert node.quorum.kraft_version == 1
            (voter,) = node.quorum.describe().voters
            assert voter.key == raised.voters[0].key
            assert "a" in node.image.topics
            stored = (tmp_path / METADATA / "quorum-state").read_text()
            assert '"data_version":1' in stored


async def test_another_directory_is_refused_once_the_log_defines_the_voters(tmp_path: Path) -> None:
    formatted_with_static_voters(tmp_path)
    async with running(tmp_path, STATIC) as node:
        await bootstrapped(node)
        node.quorum.raise_kraft_version(1)
        old_id = uuid_text(node.directory.meta.directory_id or ZERO_UUID)
    properties = tmp_path / "meta.properties"
    properties.write_text(
        properties.read_text().replace(old_id, uuid_text(random_uuid(SYSTEM_CHANCE)))
    )
    with pytest.raises(VotersError, match="replaced or formatted again"):
        async with running(tmp_path, STATIC):
            pass


async def test_a_disk_that_refuses_the_new_kraft_version_leaves_the_old_one() -> None:
    disk = SimulatedDisk()
    formatted_with_static_voters(ANYWHERE, disk)
    async with running(ANYWHERE, STATIC, filesystem=disk) as node:
        await bootstrapped(node)
        disk.fail_at(disk.effects + 1, OSError(errno.ENOSPC, "full"), for_ever=True)
        with pytest.raises(KafkaError):
            node.quorum.raise_kraft_version(1)
        assert node.quorum.kraft_version == 0
        assert node.quorum.describe().voters[0].key.directory_id == ZERO_UUID
