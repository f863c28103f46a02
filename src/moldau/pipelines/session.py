"""A Spark session with the settings that pipelines need."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moldau.pipelines.worker_python import worker_python
from moldau.protocol.errors import MoldauError

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# Each was measured or met; docs/pipelines.md tells users what they may change.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
    # A third to a half of the time of small batches, on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    # A busy machine takes its time to start Python.
    "spark.python.authenticate.socketTimeout": "120s",
    # State may be larger than memory.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Stopping a query goes through a regular expression that is deep for long texts.
    "spark.driver.extraJavaOptions": f"-Xss8m -Dlog4j2.configurationFile={_LOG_SETTINGS}",
}
_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def new_session(name: str, master: str, settings: Mapping[str, str]) -> Any:
    """Or the one that this process has. Raises MoldauError."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MoldauError("pipelines need Spark: pip install 'moldau[spark]'") from None
    from moldau.spark.java import ensure_java

    if SparkSession.getActiveSession() is None:
        ensure_java()
        own = worker_python() if master.startswith("local") else sys.executable
        os.environ.setdefault("PYSPARK_PYTHON", own)
    builder = SparkSession.builder.master(master).appName(f"moldau.{name}")
    known = _SETTINGS | (_LOCAL_SETTINGS if master.startswith("local") else {})
    if master.startswith("local"):
        known["spark.sql.shuffle.partitions"] = str(_cores(master))
    for option, value in (known | dict(settings)).items():
        builder = builder.config(option, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # noqa: BLE001 - Spark raises all sorts
        text = str(error).splitlines()
        raise MoldauError(
            f"Spark does not start at {master}: {text[0] if text else error}"
        ) from None
    return session


def _cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].split(",")[0]
    return int(inside) if inside.isdecimal() else os.cpu_count() or 1
