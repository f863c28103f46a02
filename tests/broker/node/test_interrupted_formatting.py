"""A node that formats itself: the power fails, or the process is killed, anywhere on the way."""

import errno
from pathlib import Path
from random import Random

import pytest

from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.broker.node.host import Host
from moldau.broker.node.startup import NodeOptions, open_directories
from moldau.config.broker import BrokerConfig
from moldau.config.log import LogConfig
from moldau.config.standalone import standalone_properties
from moldau.storage.directory.logs import Logs
from moldau.storage.directory.meta_properties import META_PROPERTIES_FILE, read_meta_properties
from moldau.storage.disk.failures import ForeignDirectoryError
from moldau.storage.log.log import LogOptions
from moldau.testing.simulated_disk import SimulatedCrash, SimulatedDisk

PROPERTIES = standalone_properties("/data", host="127.0.0.1", port=0)
CONFIG = BrokerConfig.parse(PROPERTIES)
FOLDERS = ("/a", "/b", "/c")


def with_folders(metadata: str) -> BrokerConfig:
    """Three log directories, and the one of them that has the metadata log."""
    return BrokerConfig.parse(
        PROPERTIES | {"log.dirs": ",".join(FOLDERS), "metadata.log.dir": metadata}
    )


def start(disk: SimulatedDisk, config: BrokerConfig = CONFIG) -> str:
    """Opens the directories and loads their logs, of which there are none yet. Returns the id of
    the cluster.
    """
    host = Host(filesystem=disk, chance=Random(1))
    directories = open_directories(host, config, NodeOptions(formats_itself=True), now_ms=0)
    try:
        for directory in directories.logs:
            Logs(directory, lambda _partition: LogOptions(config=LogConfig())).load(now_ms=0)
        return directories.cluster_id
    finally:
        directories.close()


def interrupted_at(effect: int, config: BrokerConfig = CONFIG) -> SimulatedDisk | None:
    """None if everything is done before that effect."""
    disk = SimulatedDisk()
    disk.crash_at(effect)
    try:
        start(disk, config)
    except SimulatedCrash:
        return disk
    return None


def test_the_next_start_formats_again_after_a_power_cut_anywhere() -> None:
    effect = 1
    while (disk := interrupted_at(effect)) is not None:
        for name, after in disk.variants_after_crash():
            assert start(after), (effect, name)
        effect += 1
    assert effect > len(("bootstrap.checkpoint", "the first snapshot", "meta.properties"))


def test_what_a_killed_process_left_is_durable_after_the_next_start() -> None:
    effect = 1
    while (disk := interrupted_at(effect)) is not None:
        again = disk.fork()
        cluster_id = start(again)
        after_power_cut = again.after_crash(lambda _change: False)
        assert after_power_cut.exists(Path("/data/meta.properties")), effect
        assert start(after_power_cut) == cluster_id, effect
        effect += 1


def formatted(disk: SimulatedDisk) -> list[str]:
    return [each for each in FOLDERS if disk.exists(Path(each, META_PROPERTIES_FILE))]


@pytest.mark.parametrize("metadata", FOLDERS)
def test_a_formatting_of_several_directories_is_completed_by_the_next_start(metadata: str) -> None:
    """All get the same cluster, and no directory is missing silently."""
    config, effect, seen = with_folders(metadata), 1, set()
    while (disk := interrupted_at(effect, config)) is not None:
        for left in (disk.fork(), disk.after_crash(lambda _: False), disk.crash(Random(effect))):
            before = formatted(left)
            seen.add(len(before))
            cluster_id = start(left, config)
            assert formatted(left) == list(FOLDERS), effect
            for folder in FOLDERS:
                meta = read_meta_properties(left, Path(folder, META_PROPERTIES_FILE))
                assert (meta.cluster_id, meta.node_id) == (cluster_id, config.node_id)
            assert start(left, config) == cluster_id
        effect += 1
    assert seen == {0, 1, 2, 3}


def test_a_start_that_may_not_format_names_the_directory_that_is_not_formatted() -> None:
    config, disk = with_folders("/a"), SimulatedDisk()
    start(disk, config)
    disk.remove(Path("/b", META_PROPERTIES_FILE))
    host = Host(filesystem=disk, chance=Random(1))
    with pytest.raises(ForeignDirectoryError, match=r"^/b: is not formatted, but /a is"):
        open_directories(host, config, NodeOptions(), now_ms=0)
    options = FormatOptions(standalone=True, ignore_formatted=True, cluster_id=cluster_of(disk))
    done = format_node(disk, config, options, 0)
    assert [path for path, _ in done.directories] == [Path("/b")]
    open_directories(host, config, NodeOptions(), now_ms=0).close()


def cluster_of(disk: SimulatedDisk) -> str:
    return read_meta_properties(disk, Path("/a", META_PROPERTIES_FILE)).cluster_id or ""


def test_a_lost_metadata_directory_is_not_formatted_again() -> None:
    """The new metadata would not know the logs in the other directories."""
    config, disk = with_folders("/a"), SimulatedDisk()
    start(disk, config)
    disk.plant(Path("/b/orders-0/partition.metadata"), b"version: 0\n")
    disk.remove_tree(Path("/a"))
    with pytest.raises(ForeignDirectoryError, match="the cluster's metadata is missing"):
        start(disk, config)
    assert not disk.exists(Path("/a"))


def test_a_broken_disk_does_not_prevent_the_start_of_the_others() -> None:
    config, disk = with_folders("/a"), SimulatedDisk()
    start(disk, config)
    disk.fail_reads(Path("/c", META_PROPERTIES_FILE), OSError(errno.EIO, "broken"))
    host = Host(filesystem=disk, chance=Random(1))
    for options in (NodeOptions(), NodeOptions(formats_itself=True)):
        directories = open_directories(host, config, options, now_ms=0)
        assert directories.unavailable == [Path("/c")]
        directories.close()
