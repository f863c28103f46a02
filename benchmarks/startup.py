"""The time and memory that our own modules add to a server's start, over a bare Python with the
libraries that a server uses. Aim: less than 60 ms and 15 MB. Bytecode is cached, as in every
installed package; the least of many runs counts, because other load on the machine only adds.
"""

import os
import subprocess
import sys
import tempfile

from kept_results import keep

RUNS = 25
BARE = "import asyncio, crc32c, cramjam"
SERVER = (
    f"{BARE}, moldau.protocol.wire.codec, moldau.protocol.wire.frame, moldau.storage.directory.logs"
)
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


def measure_once(code: str, environment: dict[str, str]) -> tuple[float, float]:
    """Milliseconds and MB."""
    command = [sys.executable, "-c", MEASURE.format(code=code)]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, kilobytes = map(float, shown.stdout.split())
    return seconds * 1000, kilobytes / 1024


def measure_all(cases: dict[str, str]) -> dict[str, tuple[float, float]]:
    """In turns, so that a busy minute of the machine affects all cases alike."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as cache:
        environment["PYTHONPYCACHEPREFIX"] = cache
        for run in range(RUNS + 1):
            for name, code in cases.items():
                one = measure_once(code, environment)
                if run > 0:  # the first one compiles
                    found[name].append(one)
    return {name: (min(runs)[0], min(mb for _, mb in runs)) for name, runs in found.items()}


def main() -> None:
    cases = {"bare libraries": BARE, "server modules": SERVER, "and 14 APIs' messages": BUSY}
    measured = measure_all(cases)
    bare_ms, bare_mb = measured["bare libraries"]
    rows = {}
    print(f"{'':24}{'ms':>8}{'MB':>8}{'+ms':>8}{'+MB':>8}")
    for name, (ms, mb) in measured.items():
        rows[name] = {"ms": round(ms, 1), "mb": round(mb, 1)}
        print(f"{name:24}{ms:8.1f}{mb:8.1f}{ms - bare_ms:8.1f}{mb - bare_mb:8.1f}")
    keep("startup", startup=rows)


if __name__ == "__main__":
    main()
