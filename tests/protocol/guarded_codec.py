"""Reads damaged messages that end right before an unreadable page: one byte too far kills the
process. Started by test_codec_bounds.py; prints the number of messages and ends by touching that
page.
"""

import ctypes
import resource
import sys

from protocol.codec_loops import COMPILED
from protocol.guarded_records import guarded_memory
from protocol.wire.test_fuzz_codec import damaged_frames, read_or_refuse, whole_frames


def main() -> int:
    area, memory = guarded_memory()
    tried = 0
    for kind, version, wire in damaged_frames(whole_frames(), seed=6, step=3, count=24):
        if len(wire) > len(memory):
            continue
        place = memory[len(memory) - len(wire) :]
        place[:] = wire
        read_or_refuse(COMPILED, kind, version, place)
        tried += 1
    sys.stdout.write(f"{tried}\n")
    sys.stdout.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(ctypes.addressof(ctypes.c_char.from_buffer(area)) + len(memory), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
