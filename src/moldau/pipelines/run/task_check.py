"""Checks that Spark's tasks can work, wherever they run, before anything is read."""

import platform
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from moldau.protocol.errors import MoldauError

_REPORT_AFTER_S = 20.0
_HINT = "install it there, or send a packed environment with --env (docs/how-to/spark-clusters.md)"


class _TaskReport(NamedTuple):
    host: str
    moldau: str
    sees_folder: bool


def _report(folder: str) -> _TaskReport:
    """Runs in a task."""
    from importlib.metadata import version

    return _TaskReport(platform.node(), version("moldau"), Path(folder).is_dir())


def check_tasks(session: Any, folder: str, report_wait: Callable[[str], None]) -> bool:
    """Checks that tasks can work, by running one job before anything is read. Returns whether they
    see a folder of this machine. `report_wait` is called with a line while no task has started.
    Raises MoldauError.
    """
    context = session.sparkContext
    count = max(context.defaultParallelism, 2)
    reports: list[_TaskReport] = []
    failed: list[Exception] = []
    done = threading.Event()

    def probe() -> None:
        try:
            reports.extend(context.parallelize([folder] * count, count).map(_report).collect())
        except Exception as error:  # noqa: BLE001 - Spark raises all sorts
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=probe, name="probe-tasks", daemon=True).start()
    while not done.wait(_REPORT_AFTER_S):
        report_wait(
            f"waiting for tasks at {context.master}: none has answered yet; check its free cores "
            "and memory (spark.executor.memory, spark.cores.max)"
        )
    if failed:
        raise MoldauError(task_failure(str(failed[0]))) from None
    own = version_here()
    for report in reports:
        if report.moldau != own:
            raise MoldauError(
                f"{report.host} has moldau {report.moldau} for tasks, and this is {own}: "
                "both must be the same"
            )
    return all(report.sees_folder for report in reports)


def version_here() -> str:
    from importlib.metadata import version

    return version("moldau")


def task_failure(text: str) -> str:
    """The line of Spark's message that says what to do."""
    own = ".".join(platform.python_version_tuple()[:2])
    if "PYTHON_VERSION_MISMATCH" in text or "Python in worker has different version" in text:
        return f"tasks run another Python than this one ({own}): use the same minor version in both"
    if "No module named 'moldau'" in text or "No package metadata was found for moldau" in text:
        return f"tasks have no moldau: {_HINT}"
    if "No module named 'pyspark'" in text or "No module named pyspark" in text:
        return f"tasks have no pyspark: {_HINT}"
    if "Cannot run program" in text:
        program = text.partition('Cannot run program "')[2].partition('"')[0]
        return f"there is no {program} where tasks run: {_HINT}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line]
    return f"tasks cannot work: {(errors or lines or [text])[-1]}"
