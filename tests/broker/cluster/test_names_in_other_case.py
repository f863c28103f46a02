"""Topics whose names differ only in case, on a volume that treats such names as the same, as the
file systems of macOS do.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker.data_node import DataNode, batch, running, topic_id, values_of

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem
from moldau.storage.log.read import Isolation
from moldau.types import Offset


class CaselessDisk(DiskFileSystem):
    """Below `root` a name is found regardless of its case."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _found(self, path: Path) -> Path:
        if path == self._root or self._root not in path.parents:
            return path
        parent = self._found(path.parent)
        there = parent.iterdir() if parent.is_dir() else ()
        names = {each.name.lower(): each.name for each in there}
        return parent / names.get(path.name.lower(), path.name)

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        return super().open(self._found(path), create=create)

    def exists(self, path: Path) -> bool:
        return super().exists(self._found(path))

    def list_directory(self, path: Path) -> list[str]:
        return super().list_directory(self._found(path))

    def make_directory(self, path: Path) -> None:
        super().make_directory(self._found(path))

    def is_directory(self, path: Path) -> bool:
        return super().is_directory(self._found(path))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(self._found(source), self._found(target))

    def remove(self, path: Path) -> None:
        super().remove(self._found(path))

    def remove_tree(self, path: Path) -> None:
        super().remove_tree(self._found(path))

    @contextlib.contextmanager
    def hold_directory(self, path: Path) -> Iterator[Callable[[], None]]:
        with super().hold_directory(self._found(path)) as sync:
            yield sync

    def file_size(self, path: Path) -> int:
        return super().file_size(self._found(path))

    def modified_ms(self, path: Path) -> int:
        return super().modified_ms(self._found(path))


async def append(node: DataNode, value: bytes) -> None:
    partition = node.replicas.lookup("orders", 0)
    await partition.wait_committed(partition.append(batch(value)).last_offset)


def values(node: DataNode) -> list[bytes | None]:
    log = node.replicas.lookup("orders", 0).log
    return values_of(log.read(Offset(0), 10_000, isolation=Isolation.LOG_END).records)


def check_refused(node: DataNode) -> None:
    with pytest.raises(KafkaError) as refused:
        node.replicas.lookup("Orders", 0).log  # noqa: B018 - it is not there
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "differ in case" in refused.value.detail


async def test_a_topic_does_not_get_the_log_of_one_whose_name_differs_in_case(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, filesystem=CaselessDisk(tmp_path)) as node:
        node.create_topic("orders")
        await append(node, b"one")
        with caplog.at_level(logging.ERROR):
            node.create_topic("Orders", number=2)
        assert "belongs to topic id" in caplog.text
        check_refused(node)
        await append(node, b"two")

        await node.restart()
        assert node.replicas.lookup("orders", 0).log.topic_id == topic_id(1)
        check_refused(node)
        node.delete_topic(2)
        await append(node, b"three")
        assert values(node) == [b"one", b"two", b"three"]


async def test_the_name_is_free_when_the_other_topic_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, filesystem=CaselessDisk(tmp_path)) as node:
        node.create_topic("Orders", number=2)
        node.delete_topic(2)
        node.create_topic("orders")
        await append(node, b"one")
        assert values(node) == [b"one"]


async def test_a_log_does_not_move_to_where_its_name_differs_in_case(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2, filesystem=CaselessDisk(tmp_path)) as node:
        node.create_topic("orders")
        node.create_topic("Orders", number=2)
        here, there = (node.replicas.lookup(name, 0).log for name in ("orders", "Orders"))
        assert here.directory is not there.directory
        with pytest.raises(KafkaError, match="differ in case"):
            node.replicas.move(here.topic_partition, there.directory.path)
        assert all(directory.is_online for directory in node.directories)
