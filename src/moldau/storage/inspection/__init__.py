"""Inspection of files, partition directories and log directories of Kafka or Moldau: takes a path
and yields typed findings. It only reads, holds a few megabytes, and never raises for a file's
content.
"""

from collections.abc import Iterator
from pathlib import Path

from moldau.storage.directory.directory import parse_directory_name
from moldau.storage.inspection.directories import (
    inspect_log_directory,
    inspect_partition_directory,
    is_partition_directory,
)
from moldau.storage.inspection.files import inspect_file
from moldau.storage.inspection.items import Item
from moldau.storage.inspection.options import Decoding, InspectionOptions

__all__ = ["Decoding", "InspectionOptions", "inspect_file", "inspect_path"]


def inspect_path(path: Path, options: InspectionOptions) -> Iterator[Item]:
    """Raises OSError if the path itself cannot be read."""
    path = path.absolute()
    if not options.filesystem.is_directory(path):
        return inspect_file(path, options)
    if parse_directory_name(path.name) or is_partition_directory(path, options):
        return inspect_partition_directory(path, options)
    return inspect_log_directory(path, options)
