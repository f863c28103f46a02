"""Spark on other machines: checks the master before Spark starts, ships Python to the tasks, and
checks the tasks themselves.
"""

import atexit
import os
import platform
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from moldau.pipelines.run.worker_python import worker_python
from moldau.protocol.errors import MoldauError

ENVIRONMENT = "environment"
"""The folder of the packed environment where tasks run."""
_PYTHON = f"./{ENVIRONMENT}/bin/python"
_CONNECT_S = 10.0
_REPORT_AFTER_S = 20.0
_STANDALONE_PORT = 7077
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_HINT = "install it there, or send a packed environment with --env (docs/how-to/spark-clusters.md)"


def is_local(master: str) -> bool:
    return master.startswith("local")


def check_master(master: str, variables: Mapping[str, str] = os.environ) -> None:
    """Raises MoldauError for problems that Spark would report late or in a hundred lines."""
    if is_local(master):
        return
    if master == "yarn":
        if not (variables.get("HADOOP_CONF_DIR") or variables.get("YARN_CONF_DIR")):
            raise MoldauError(
                "--master yarn: HADOOP_CONF_DIR must name the folder with yarn-site.xml"
            )
        return
    addresses = _addresses(master)
    failures = [failure for address in addresses if (failure := _unreachable(*address)) is not None]
    if len(failures) == len(addresses):
        raise MoldauError(f"--master {master} is not reachable: {'; '.join(failures)}")


def _addresses(master: str) -> list[tuple[str, int]]:
    if master.startswith("spark://"):
        return [_address(f"//{host}", master, _STANDALONE_PORT) for host in master[8:].split(",")]
    if master.startswith("k8s://"):
        inner = master[6:] if "://" in master[6:] else f"https://{master[6:]}"
        return [_address(inner, master, 80 if inner.startswith("http:") else 443)]
    raise MoldauError(f"--master {master}: write local[*], spark://host:7077, yarn or k8s://…")


def _address(url: str, master: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        found = parts.hostname, parts.port or port
    except ValueError:
        found = None, port
    if found[0] is None:
        raise MoldauError(f"--master {master}: the host is missing")
    return found[0], found[1]


def _unreachable(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return None


def shipped(py_files: str | None, env: str | None) -> dict[str, str]:
    """The settings with which Spark ships files to the tasks. Raises MoldauError."""
    settings = {}
    if py_files is not None:
        files = [file.strip() for file in py_files.split(",") if file.strip()]
        settings["spark.submit.pyFiles"] = ",".join(_absolute(file, "--py-files") for file in files)
    if env is not None:
        settings["spark.archives"] = f"{_absolute(env, '--env')}#{ENVIRONMENT}"
        settings["spark.pyspark.python"] = _PYTHON
    return settings


def _absolute(path: str, option: str) -> str:
    if "://" in path:
        return path
    if not Path(path).is_file():
        raise MoldauError(f"{option} {path}: the file does not exist")
    return str(Path(path).resolve())


@contextmanager
def python_for_tasks(master: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets the Python for tasks while Spark starts. Spark uses one path on the driver's machine and
    where tasks run. A path within a packed environment exists only there, so a wrapper of our own
    Python takes its place here.
    """
    wanted = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    own = worker_python() if is_local(master) else sys.executable
    os.environ["PYSPARK_PYTHON"] = wanted or own
    # PYSPARK_DRIVER_PYTHON would override PYSPARK_PYTHON, for tasks too.
    os.environ.pop("PYSPARK_DRIVER_PYTHON", None)
    if wanted is None or not wanted.startswith("./"):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="moldau-driver-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    python = folder / wanted
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{worker_python()}" "$@"\n')
    python.chmod(0o755)
    before = Path.cwd()
    # Spark's process keeps this working directory.
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


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


def fit_shuffles(session: Any) -> None:
    """Uses as many shuffle partitions as tasks run at once, unless configured: Spark's 200 mean 200
    state stores for each stateful flow. Spark keeps the number that a checkpoint was created with.
    A cluster with dynamic allocation has no size yet.
    """
    context = session.sparkContext
    known = context.getConf()
    is_growing = str(known.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
    if not is_growing and known.get(_SHUFFLE_PARTITIONS) is None:
        session.conf.set(_SHUFFLE_PARTITIONS, str(context.defaultParallelism))


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
