"""The memory of a Spark session's Python processes, as the system reports it."""

import re
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


def peaks_of_python(session: Any) -> list[int]:
    """The peak memory of each since `reset_peaks`, in bytes."""
    return [_peak_bytes(pid) for pid in _python_of(session)]


def reset_peaks(session: Any) -> None:
    for pid in _python_of(session):
        # 5: see proc(5), clear_refs.
        (_PROC / str(pid) / "clear_refs").write_text("5")


def _python_of(session: Any) -> list[int]:
    """Spark's JVM starts daemons, which start the processes of tasks."""
    parents = {}
    for status in _PROC.glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may contain anything.
            rest = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(status.parent.name)] = int(rest[1])
    jvm = int(session._jvm.java.lang.ProcessHandle.current().pid())
    found = [jvm]
    for parent in found:
        found += [pid for pid, its in parents.items() if its == parent]
    return found[1:]


def _peak_bytes(pid: int) -> int:
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) << 10 if match else 0
