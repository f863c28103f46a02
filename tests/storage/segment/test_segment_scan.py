"""A scan reads a segment in pieces: batches may cross their ends, or be larger than a piece."""

import os
from pathlib import Path

import pytest
from storage.log_maker import records_batch

from moldau.protocol.records.batch_builder import BatchOptions
from moldau.protocol.records.record_loops import INCOMPLETE
from moldau.protocol.records.scanned_batch import POSITION
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.log.damaged_bytes import TolerantScan
from moldau.storage.segment.scan import ALL_OFFSETS, PIECE_BYTES, SegmentScan

VALUE_SIZES = [100, PIECE_BYTES - 500, 100, 3 * PIECE_BYTES, 100, PIECE_BYTES // 2, 100]


def write(path: Path) -> list[int]:
    """Returns the start of each batch, and the end of the last one."""
    positions, content = [0], b""
    for offset, size in enumerate(VALUE_SIZES):
        content += records_batch([bytes(size)], BatchOptions(base_offset=offset))
        positions.append(len(content))
    path.write_bytes(content)
    return positions


def test_batches_of_all_sizes_are_found(tmp_path: Path) -> None:
    positions = write(tmp_path / "a.log")
    file = DiskFileSystem().open(tmp_path / "a.log")
    scan = SegmentScan(file, 0, file.size(), verify_crc=True)
    assert [header[POSITION] for piece in scan for header in piece] == positions[:-1]
    assert (scan.valid_end, scan.problem) == (positions[-1], None)
    file.close()


@pytest.mark.parametrize("left", [1, 2, 3, 4, 5, 6])
def test_a_scan_of_a_truncated_file_ends(tmp_path: Path, left: int) -> None:
    """`left` batches remain, and half of the next one."""
    positions = write(tmp_path / "a.log")
    file = DiskFileSystem().open(tmp_path / "a.log")
    size = file.size()
    os.truncate(tmp_path / "a.log", (positions[left] + positions[left + 1]) // 2)
    scan = SegmentScan(file, 0, size, verify_crc=True)
    assert [header[POSITION] for piece in scan for header in piece] == positions[:left]
    assert (scan.valid_end, scan.problem) == (positions[left], INCOMPLETE)
    tolerant = TolerantScan(file, 0, size, offsets=ALL_OFFSETS)
    assert [header[POSITION] for piece in tolerant for header in piece] == positions[:left]
    assert [each.position for each in tolerant.damaged] == [positions[left]]
    file.close()
