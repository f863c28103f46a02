"""The lines about disks that an operator reads in a node's output, and its metrics."""

from pathlib import Path

from support.running_node import QUICK_SETTINGS, RunningNode
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import create_topics, produce
from system.node.small_disk import SmallDisk, small_disk


def lines_with(node: RunningNode, text: str) -> list[str]:
    return [line for line in node.errors.splitlines() if text in line]


def fill(disk: SmallDisk, client: WireClient) -> None:
    disk.fill()
    size = 100_000
    while size:
        if produce(client, "kept", bytes(size))[0]:
            size //= 2


def test_a_full_disk_is_reported_once_with_advice_and_so_is_its_end(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        settings = {"log.dirs": str(disk.path / "data"), "moldau.reserve.bytes": "0"}
        with RunningNode(tmp_path, QUICK_SETTINGS | settings) as node:
            node.start()
            with WireClient(node.address) as client:
                create_topics(client, {"kept": 1})
                fill(disk, client)
                (line,) = lines_with(node, "bytes are free")
                assert str(disk.path / "data") in line
                assert "Make room: delete topics or records" in line
                assert not lines_with(node, "accepts writes again")
                disk.make_room()
                wait_for(lambda: produce(client, "kept", b"x")[0] == 0, "room")
                (line,) = lines_with(node, "accepts writes again")
                assert "writes were refused" in line


def test_a_disk_with_room_for_small_writes_only_stays_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        settings = {"log.dirs": str(disk.path / "data"), "moldau.reserve.bytes": "0"}
        with RunningNode(tmp_path, QUICK_SETTINGS | settings) as node:
            node.start()
            with WireClient(node.address) as client:
                create_topics(client, {"kept": 1})
                disk.fill()
                disk.make_room(256 << 10)
                for _ in range(3):
                    assert produce(client, "kept", bytes(900_000))[0] != 0
                    assert produce(client, "kept", b"small")[0] == 0
                assert len(lines_with(node, "bytes are free")) == 1
                assert not lines_with(node, "accepts writes again")
                disk.make_room()
                assert produce(client, "kept", b"small")[0] == 0
                assert len(lines_with(node, "accepts writes again")) == 1


def test_a_recovery_after_a_kill_is_logged_and_a_start_after_a_stop_is_not(tmp_path: Path) -> None:
    with RunningNode(tmp_path, QUICK_SETTINGS) as node:
        node.start()
        with WireClient(node.address) as client:
            create_topics(client, {"kept": 1})
            assert produce(client, "kept", b"x") == (0, 0)
        node.stop()
        node.start()
        assert not lines_with(node, "not stopped cleanly")
        node.kill()
        (log,) = node.log_folder.glob("kept-0/*.log")
        with log.open("ab") as file:
            file.write(b"torn")
        node.start()
        (line,) = lines_with(node, "not stopped cleanly")
        assert "1 logs were checked" in line
        assert " 4 cut off" in line
