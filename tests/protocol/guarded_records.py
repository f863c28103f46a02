"""Runs the compiled reading loops over damaged bodies that end right before an unreadable page: one
byte too far kills the process. Started by test_record_bounds.py; prints the number of bodies.
"""

import ctypes
import mmap
import resource
import sys
from importlib import import_module
from random import Random
from typing import Any

from protocol.batch_damage import damage

from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record

_records: Any = import_module("moldau.protocol.records._records")
PAGE_BYTES = mmap.PAGESIZE
PAGES = 4


def guarded_memory() -> tuple[mmap.mmap, memoryview]:
    """Writable pages followed by an unreadable one."""
    area = mmap.mmap(-1, (PAGES + 1) * PAGE_BYTES)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    guard = ctypes.c_void_p(start + PAGES * PAGE_BYTES)
    if libc.mprotect(guard, ctypes.c_size_t(PAGE_BYTES), ctypes.c_int(0)) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    return area, memoryview(area)[: PAGES * PAGE_BYTES]


def sample(seed: Random) -> bytes:
    records = [
        Record(
            index, 1000 + seed.randrange(1 << 40), seed.choice([None, b"k" * seed.randrange(80)]),
            seed.choice([None, b"v" * seed.randrange(300)]),
            tuple(("name" * seed.randrange(3), seed.choice([None, b"x" * seed.randrange(70)]))
                  for _ in range(seed.randrange(3))),
        )
        for index in range(seed.randrange(1, 8))
    ]  # fmt: skip
    return build_batch(records)


def read_everything(view: memoryview, count: int) -> None:
    bounds = (0, len(view))
    sink = _records.ColumnSink()
    calls: tuple[Any, ...] = (
        lambda: _records.decode_records(view, bounds, count, 0, 0, None),
        lambda: _records.validate_records(view, bounds, count, 0, (0, 1 << 40), True),
        lambda: sink.append(view, bounds, count, (0, 0, None), (0, 1 << 60)),
        lambda: _records.RecordCursor(
            view, bounds, count, (0, 0, None), ("t", 0, 0, 0), (None, None)
        ).take([], count),
    )
    for call in calls:
        try:
            call()
        except KafkaError:
            continue


def main() -> int:
    seed = Random(7)
    _area, memory = guarded_memory()
    tried = 0
    for _ in range(int(sys.argv[1])):
        batch = sample(seed)
        count = int.from_bytes(batch[57:61], "big")
        for content, is_body in ((batch[61:], True), (batch, False)):
            damaged = damage(content, seed)[: len(memory)]
            place = memory[len(memory) - len(damaged) :]
            place[:] = damaged
            if is_body:
                read_everything(place, count)
            else:
                _records.scan_batches(place, 0, len(place), True)
                _records.scan_batches(place, 0, len(place), False)
                if len(place) >= 61:
                    place[8:12] = (len(place) - 12).to_bytes(4, "big")
                _records.stamp_batch(place, 0, 0, (0, 1 << 41, False, 1 << 20))
            tried += 1
    # Proof that the guard page works: reading beyond the end kills the process.
    sys.stdout.write(f"{tried}\n")
    sys.stdout.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(ctypes.addressof(ctypes.c_char.from_buffer(_area)) + len(memory), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
