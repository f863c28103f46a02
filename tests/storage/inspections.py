"""Helpers to inspect and to forge files, for the tests of inspections."""

import struct
from pathlib import Path

import crc32c

from moldau.storage.inspection import InspectionOptions, inspect_path
from moldau.storage.inspection.items import BatchFound, Item, Problem, Remark

SHALLOW = InspectionOptions()
DEEP = InspectionOptions(records=True)
LOG_NAME = "00000000000000000000.log"
HEADER_BYTES = 61


def inspect(path: Path, options: InspectionOptions = SHALLOW) -> list[Item]:
    return list(inspect_path(path, options))


def problems_of(path: Path, options: InspectionOptions = SHALLOW) -> list[Problem]:
    return [item for item in inspect(path, options) if isinstance(item, Problem)]


def remarks_of(path: Path) -> list[Remark]:
    return [item for item in inspect(path) if isinstance(item, Remark)]


def batches_of(path: Path) -> list[BatchFound]:
    return [item for item in inspect(path) if isinstance(item, BatchFound)]


def with_crc(batch: bytearray) -> bytes:
    """The batch with a matching checksum."""
    batch[17:21] = struct.pack(">I", crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)
