"""The Python of Spark's tasks, here and on other machines: files and environments that are shipped
to them, and the interpreter that runs them.
"""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from moldau.pipelines.run.masters import is_local
from moldau.pipelines.run.worker_python import worker_python
from moldau.protocol.errors import MoldauError

ENVIRONMENT = "environment"
"""The folder of the packed environment where tasks run."""
_PYTHON = f"./{ENVIRONMENT}/bin/python"


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
