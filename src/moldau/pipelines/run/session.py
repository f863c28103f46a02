"""Creates a Spark session with the settings that pipelines need."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moldau.pipelines.run.masters import check_master, is_local
from moldau.pipelines.run.requirements import require_packages
from moldau.pipelines.run.task_python import python_for_tasks
from moldau.protocol.errors import MoldauError

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# Each was measured or has fixed a failure; docs/how-to/pipelines.md says which ones users may
# change.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
    # A busy machine may be slow to start Python.
    "spark.python.authenticate.socketTimeout": "120s",
    # State may be larger than memory.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Stopping a query matches a regular expression that recurses deeply in long texts.
    "spark.driver.extraJavaOptions": f"-Xss8m -Dlog4j2.configurationFile={_LOG_SETTINGS}",
}
# Saves a third to a half of the time of small batches on a local disk.
_LOCAL_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}
_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


# PySpark logs JSON with a Java stack for errors that are raised and reported anyway.
_NOISE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def new_session(
    name: str, master: str, settings: Mapping[str, str], *, checkpoint: str = ""
) -> Any:
    """Creates a session, or returns the one that this process has already. `checkpoint` is a folder
    or a URL. Raises MoldauError.
    """
    require_packages()
    from pyspark.sql import SparkSession

    from moldau.spark.runtime.java import ensure_java

    check_master(master)
    quiet_pyspark()
    if SparkSession.getActiveSession() is None:
        ensure_java()
    builder = SparkSession.builder.master(master).appName(f"moldau.{name}")
    known = dict(_SETTINGS)
    if "://" not in checkpoint or checkpoint.startswith("file://"):
        known |= _LOCAL_CHECKPOINT
    if is_local(master):
        known |= _LOCAL_SETTINGS
        known[_SHUFFLE_PARTITIONS] = str(_cores(master))
    for option, value in (known | dict(settings)).items():
        builder = builder.config(option, value)
    try:
        with python_for_tasks(master, settings):
            session = builder.getOrCreate()
    except Exception as error:  # noqa: BLE001 - Spark raises all sorts
        raise MoldauError(f"cannot start Spark at {master}: {_first_line(error)}") from None
    return session


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


def quiet_pyspark() -> None:
    """Stops PySpark from logging errors of plans, which it raises as well."""
    from pyspark.logger import PySparkLogger

    for name in _NOISE:
        PySparkLogger.getLogger(name).disabled = True


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else repr(error)


def _cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].split(",")[0]
    return int(inside) if inside.isdecimal() else os.cpu_count() or 1
