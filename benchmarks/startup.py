"""What our own modules add to a server's start: time and memory over a bare Python with the
libraries that a server uses. Aim: less than 60 ms and 15 MB.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

RUNS = 15
BARE = "import asyncio, crc32c, cramjam"
SERVER = f"{BARE}, moldau.protocol.codec, moldau.protocol.frame, moldau.storage.logs"
BUSY = (
    f"{SERVER}\n"
    "from moldau.protocol.messages import request_class, response_class\n"
    "for key in (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 22):\n"
    "    request_class(key), response_class(key)"
)
MEASURE = (
    "import resource, time\n"
    "start = time.perf_counter()\n"
    "{code}\n"
    "print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def measure(code: str) -> tuple[float, float]:
    """Median milliseconds and MB."""
    times, memory = [], []
    for _ in range(RUNS):
        command = [sys.executable, "-c", MEASURE.format(code=code)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        times.append(float(shown[0]) * 1000)
        memory.append(float(shown[1]) / 1024)
    return statistics.median(times), statistics.median(memory)


def main() -> None:
    cases = {"bare libraries": BARE, "server modules": SERVER, "and 14 APIs' messages": BUSY}
    bare_ms, bare_mb = measure(BARE)
    rows = {}
    print(f"{'':24}{'ms':>8}{'MB':>8}{'+ms':>8}{'+MB':>8}")
    for name, code in cases.items():
        ms, mb = measure(code)
        rows[name] = {"ms": round(ms, 1), "mb": round(mb, 1)}
        print(f"{name:24}{ms:8.1f}{mb:8.1f}{ms - bare_ms:8.1f}{mb - bare_mb:8.1f}")
    report = {"python": platform.python_version(), "cpus": os.cpu_count(), "startup": rows}
    target = Path(__file__).parent / "results" / "startup.json"
    target.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
