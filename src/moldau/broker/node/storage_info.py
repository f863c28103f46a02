"""Inspects a node's log directories without starting it."""

from dataclasses import dataclass, field
from pathlib import Path

from moldau.storage.directory.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
)
from moldau.storage.disk.failures import DamagedFileError
from moldau.storage.disk.filesystem import FileSystem


@dataclass(slots=True)
class StorageInfo:
    directories: list[Path] = field(default_factory=list)
    """The directories that exist."""
    metadata: dict[Path, MetaProperties] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def storage_info(filesystem: FileSystem, directories: list[Path]) -> StorageInfo:
    info = StorageInfo()
    for path in directories:
        if not filesystem.exists(path):
            info.problems.append(f"{path} does not exist")
        elif not filesystem.is_directory(path):
            info.problems.append(f"{path} is not a directory")
        else:
            info.directories.append(path)
            _inspect(filesystem, path, info)
    return info


def _inspect(filesystem: FileSystem, path: Path, info: StorageInfo) -> None:
    if not filesystem.exists(path / META_PROPERTIES_FILE):
        info.problems.append(f"{path} is not formatted")
        return
    try:
        meta = read_meta_properties(filesystem, path / META_PROPERTIES_FILE)
    except DamagedFileError as error:
        info.problems.append(str(error))
        return
    if meta.version == 0:
        info.problems.append(f"{path} was formatted for ZooKeeper, not for KRaft")
    for other in list(info.metadata.values())[:1]:
        if other.cluster_id != meta.cluster_id:
            info.problems.append(f"{path} belongs to another cluster than the directories before")
        elif other.node_id != meta.node_id:
            info.problems.append(f"{path} belongs to another node than the directories before")
    info.metadata[path] = meta
