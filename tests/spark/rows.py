"""Shorthands for writing records and for reading them with a reader, without a JVM."""

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from moldau import Producer
from moldau.testing import ProcessBroker, ThreadBroker
from pyspark_moldau import DefaultSource

_numbers = itertools.count()
_KINDS: dict[str, Any] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
}


def fresh_topic(node: ThreadBroker | ProcessBroker, partitions: int = 1, **config: str) -> str:
    name = f"rows-{os.getpid()}-{next(_numbers)}"
    node.create_topic(name, partitions, {k.replace("_", "."): v for k, v in config.items()})
    return name


def send(
    node: ThreadBroker | ProcessBroker, topic: str, values: Iterable[bytes], partition: int = 0
) -> None:
    with Producer(node.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def send_numbers(
    node: ThreadBroker | ProcessBroker, topic: str, count: int, first: int = 0
) -> None:
    """Sends records with keys, to all partitions."""
    numbers = [b"%d" % number for number in range(first, first + count)]
    with Producer(node.bootstrap) as producer:
        producer.send_table(topic, pa.table({"key": numbers, "value": numbers}))


def source(node: ThreadBroker | ProcessBroker, **options: str) -> DefaultSource:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return DefaultSource(CaseInsensitiveDict({"kafka.bootstrap.servers": node.bootstrap} | given))


def schema(ddl: str) -> StructType:
    """Parses a simple schema in Python, because Spark's own parser is in the JVM."""
    pairs = [part.split() for part in ddl.split(",")]
    return StructType([StructField(name, _KINDS[kind]) for name, kind in pairs])


def schema_of(found: DefaultSource, ddl: str | None) -> StructType:
    return found.schema() if ddl is None else schema(ddl)


def read_batch(
    node: ThreadBroker | ProcessBroker, ddl: str | None = None, **options: str
) -> list[dict[str, Any]]:
    """All rows, read task after task."""
    found = source(node, **options)
    reader = found.reader(schema_of(found, ddl))
    return read_parts(reader, reader.partitions())


def read_parts(reader: Any, partitions: Iterable[Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for partition in partitions:
        for batch in reader.read(partition):
            rows += batch.to_pylist()
    return rows


def values(rows: Iterable[Mapping[str, Any]]) -> list[bytes]:
    return [row["value"] for row in rows]
