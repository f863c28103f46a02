"""A start that ends while the logs are loaded: nothing is declared clean that was not opened."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from support.waiting import take_turns, until

from moldau.broker.node.host import Host
from moldau.broker.node.node import Node, NodeOptions
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.checkpoints import RECOVERY_POINT_FILE
from moldau.storage.directory.directory import CLEAN_STOP_FILE
from moldau.testing.simulated_disk import Effect, SimulatedDisk
from moldau.types import TopicPartition

FOLDERS = ("/a", "/b")
TOPIC = "orders"


def node_over(disk: SimulatedDisk) -> Node:
    properties = standalone_properties(FOLDERS[0], host="127.0.0.1", port=0)
    properties |= {"log.dirs": ",".join(FOLDERS), "moldau.reserve.bytes": "0"}
    options = NodeOptions(formats_itself=True)
    return Node(BrokerConfig.parse(properties), options, host=Host(filesystem=disk))


async def with_a_log_in_each_directory() -> SimulatedDisk:
    """The disk of a node that was stopped cleanly."""
    disk = SimulatedDisk()
    node = node_over(disk)
    await node.start()
    await node.create_topic(TOPIC, len(FOLDERS), {})
    await node.stop()
    assert {path.rpartition("/")[0] for path in marked(disk)} == set(FOLDERS)
    return disk


def marked(disk: SimulatedDisk) -> list[str]:
    """The markers of a clean shutdown."""
    return [name for name in disk.files() if name.endswith(CLEAN_STOP_FILE)]


def without_markers(disk: SimulatedDisk) -> SimulatedDisk:
    """As if the last run had been killed."""
    for name in marked(disk):
        disk.remove(Path(name))
    return disk


def promises(disk: SimulatedDisk) -> list[bytes]:
    """How far the logs of the directories are known to be on the disk."""
    return [disk.files()[f"{folder}/{RECOVERY_POINT_FILE}"] for folder in FOLDERS]


TOO_MANY = OSError(errno.EMFILE, "Too many open files")


async def assert_has_all_logs(disk: SimulatedDisk) -> None:
    """After the next start, which leaves all markers when it stops."""
    disk.error_of = lambda _effect: None
    node = node_over(disk)
    await node.start()
    try:
        for number in range(len(FOLDERS)):
            assert node.services.replicas.lookup(*TopicPartition(TOPIC, number)).has_log
    finally:
        await node.stop()
    assert len(marked(disk)) == len(FOLDERS)


@pytest.mark.parametrize("failing", FOLDERS)
async def test_a_start_that_cannot_load_all_logs_leaves_no_marker(failing: str) -> None:
    disk = without_markers(await with_a_log_in_each_directory())
    promised = promises(disk)

    def error_of(effect: Effect) -> OSError | None:
        is_refused = (effect.kind, effect.path) == ("sync_directory", failing)
        return TOO_MANY if is_refused else None

    disk.error_of = error_of
    node = node_over(disk)
    try:
        with pytest.raises(KafkaError, match="Too many open files"):
            await node.start()
    finally:
        await node.stop()
    assert marked(disk) == []
    assert promises(disk) == promised
    await assert_has_all_logs(disk)


async def test_a_log_that_could_not_be_opened_is_checked_by_the_next_start() -> None:
    """Also after a clean stop of the others."""
    disk = without_markers(await with_a_log_in_each_directory())
    promised = promises(disk)
    disk.error_of = lambda effect: (
        TOO_MANY if effect.path.startswith(f"{FOLDERS[0]}/{TOPIC}-") else None
    )
    node = node_over(disk)
    await node.start()
    await node.stop()
    assert marked(disk) == [f"{FOLDERS[1]}/{CLEAN_STOP_FILE}"]
    assert promises(disk) == promised
    await assert_has_all_logs(disk)


async def test_a_cancelled_start_waits_for_the_thread_that_loads_the_logs() -> None:
    """However often it is cancelled. It ends before the next log, so none is declared clean."""
    disk = without_markers(await with_a_log_in_each_directory())
    loop_thread = threading.get_ident()
    waits, go = threading.Event(), threading.Event()

    def wait(_path: Path) -> None:
        assert threading.get_ident() != loop_thread, "the event loop waits for a disk"
        waits.set()
        go.wait(30)

    disk.is_cold = lambda path: path.parent.name.startswith(TOPIC)
    disk.wait_for_disk = wait
    node = node_over(disk)
    starting = asyncio.ensure_future(node.start())
    try:
        await until(waits.is_set)
        for _ in range(3):
            starting.cancel()
            await take_turns()
        assert not starting.done()
        assert marked(disk) == []
    finally:
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await node.stop()
    assert marked(disk) == []
    disk.is_cold = lambda _path: False
    await assert_has_all_logs(disk)
