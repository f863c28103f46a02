"""A Spark session in this process, small and on loopback."""

import os
from pathlib import Path
from typing import Any


def local_session(folder: Path, master: str = "local[2]", **settings: str) -> Any:
    from pyspark.sql import SparkSession

    from moldau.spark import ensure_java

    # The JVM passes on the environment that it was started with, and outlives sessions: tests of
    # another folder may have started it. Spark's Python processes import the tests' faults.
    os.environ |= {"PYTHONPATH": str(Path(__file__).parents[1]), "SPARK_LOCAL_IP": "127.0.0.1"}
    ensure_java()
    known = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        # A busy machine may take long to start a Python process.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": "-Xss8m -XX:+UseSerialGC",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing."
            "FileSystemBasedCheckpointFileManager"
        ),
    }
    builder = SparkSession.builder.master(master).appName("moldau-tests")
    for name, value in (known | settings).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def started_copy(session: Any, bootstrap: str, topics: tuple[str, str], checkpoint: Path) -> Any:
    """A query that copies one topic's records to the other as they arrive."""
    topic, target = topics
    servers = {"kafka.bootstrap.servers": bootstrap}
    reading = session.readStream.format("moldau").options(**servers, subscribe=topic)
    return (
        reading.option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format("moldau")
        .options(**servers, topic=target, checkpointLocation=str(checkpoint))
        .start()
    )
