"""Reads the files of Spark's checkpoints: on a local disk, on Hadoop's file systems, or through
Spark Connect. Their layout is Spark's own.
"""

import json
from typing import Any

from moldau.core.spark.errors import OptionError
from moldau.core.spark.offset_json import read_query_offsets
from moldau.core.spark.options import QUERY_ID_PROPERTY
from moldau.spark.runtime.recognised_errors import is_path_not_found
from moldau.types import TopicPartition


def offset_lines(session: Any, checkpoint: str, batch_id: int) -> list[str]:
    """The offsets that Spark has recorded before it runs a batch, one line for each source. Raises
    OptionError if the checkpoint is not that of the query.
    """
    lines = _lines_of(session, checkpoint, f"offsets/{batch_id}")
    # The first two lines are a version and metadata of the batch.
    return [line for line in lines[2:] if line.strip()]


def query_id_of(session: Any, checkpoint: str) -> str:
    """The query's id, which is the same for all runs with a checkpoint."""
    if not is_spark_connect(session):
        return str(session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or "")
    return str(json.loads("".join(_lines_of(session, checkpoint, "metadata")))["id"])


def is_spark_connect(session: Any) -> bool:
    """Whether this is a session of Spark Connect, which has no JVM in this process."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def _lines_of(session: Any, checkpoint: str, name: str) -> list[str]:
    path = f"{checkpoint}/{name}"
    missing = OptionError(
        f"{path} does not exist; the sink needs the query's checkpointLocation, not {checkpoint}"
    )
    if is_spark_connect(session):
        try:
            # A small file is one partition, so its lines come in order.
            return [row.value for row in session.read.text(path).collect()]
        except Exception as error:
            if is_path_not_found(error):
                raise missing from None
            raise
    jvm = session.sparkContext._jvm
    file = jvm.org.apache.hadoop.fs.Path(path)
    system = file.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    if not system.exists(file):
        raise missing
    stream = system.open(file)
    try:
        content = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return str(content).splitlines()


def source_offsets(lines: list[str]) -> dict[TopicPartition, int]:
    """The offsets of those sources that are topics."""
    offsets: dict[TopicPartition, int] = {}
    for line in lines:
        try:
            offsets |= read_query_offsets(json.loads(line)).offsets
        except (ValueError, TypeError, AttributeError):
            continue
    return offsets
