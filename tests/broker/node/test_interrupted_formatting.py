"""A node that formats itself: the power fails, or the process is killed, anywhere on the way."""

from pathlib import Path
from random import Random

from moldau.broker.node.host import Host
from moldau.broker.node.startup import NodeOptions, open_directories
from moldau.config.broker import BrokerConfig
from moldau.config.log import LogConfig
from moldau.config.standalone import standalone_properties
from moldau.storage.directory.logs import Logs
from moldau.storage.log.log import LogOptions
from moldau.testing.simulated_disk import SimulatedCrash, SimulatedDisk

CONFIG = BrokerConfig.parse(standalone_properties("/data", host="127.0.0.1", port=0))


def start(disk: SimulatedDisk) -> str:
    """Opens the directories and loads their logs, of which there are none yet. Returns the id of
    the cluster.
    """
    host = Host(filesystem=disk, chance=Random(1))
    directories = open_directories(host, CONFIG, NodeOptions(formats_itself=True), now_ms=0)
    try:
        for directory in directories.logs:
            Logs(directory, lambda _partition: LogOptions(config=LogConfig())).load(now_ms=0)
        return directories.cluster_id
    finally:
        directories.close()


def interrupted_at(effect: int) -> SimulatedDisk | None:
    """None if everything is done before that effect."""
    disk = SimulatedDisk()
    disk.crash_at(effect)
    try:
        start(disk)
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
