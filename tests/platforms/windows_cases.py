"""Schemas and the Spark source against a broker that runs elsewhere: `test_other_systems.py` runs
this with the features that Windows lacks removed. Spark itself is not started.
"""

import json
import os
import pickle
from typing import Any

import pyarrow as pa
import pytest
from client.registry_server import RegistryServer
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from support.running_node import UNDER_TEST, fresh_name

from moldau import Admin, Consumer, Producer
from moldau.admin import NewTopic
from moldau.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    SchemaRegistry,
)
from moldau.spark.source.data_source import DefaultSource

BOOTSTRAP = os.environ[UNDER_TEST]
PERSON = {"name": "Božena", "age": 42}
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Person",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
    }
)
JSON = json.dumps(
    {
        "title": "Person",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    }
)
KEY_VALUE = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
ROWS = {"key": ["a", "b", "c"], "value": [b"1", b"2", None]}


@pytest.fixture
def topic() -> str:
    name = fresh_name("windows")
    with Admin(BOOTSTRAP) as admin:
        admin.create_topics([NewTopic(name=name, partitions=2)])
    return name


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_values_with_schemas_make_a_round_trip(topic: str, kind: str) -> None:
    with RegistryServer() as server:
        registry = SchemaRegistry(server.url)
        to_bytes: Any = AvroSerializer(registry, AVRO)
        from_bytes: Any = AvroDeserializer(registry)
        if kind == "json":
            to_bytes, from_bytes = (
                JsonSchemaSerializer(registry, JSON),
                JsonSchemaDeserializer(registry),
            )
        with Producer(BOOTSTRAP, value_serializer=to_bytes) as producer:
            producer.send(topic, PERSON, partition=0)
        with Consumer(BOOTSTRAP, value_deserializer=from_bytes) as consumer:
            consumer.assign([(topic, 0)])
            consumer.seek_to_beginning()
            assert next(iter(consumer)).value == PERSON
        assert list(server.subjects) == [f"{topic}-value"]


def source(**options: str) -> DefaultSource:
    return DefaultSource(CaseInsensitiveDict({"kafka.bootstrap.servers": BOOTSTRAP} | options))


def read(reader: Any, partitions: Any) -> dict[str, Any]:
    """The values by key. Spark sends the reader and its partitions to other processes."""
    reader, partitions = pickle.loads(pickle.dumps((reader, list(partitions))))
    rows = [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()]
    return {row["key"].decode(): row["value"] for row in rows}


def write(writer: Any) -> Any:
    return pickle.loads(pickle.dumps(writer)).write(iter([pa.RecordBatch.from_pydict(ROWS)]))


def test_the_source_reads_what_the_sink_writes(topic: str) -> None:
    writer = source(topic=topic).writer(KEY_VALUE, False)
    writer.commit([write(writer)])
    found = source(subscribe=topic)
    reader = found.reader(found.schema())
    assert read(reader, reader.partitions()) == dict(zip(*ROWS.values(), strict=True))


def test_the_streaming_source_reads_what_the_streaming_sink_writes(topic: str) -> None:
    found = source(subscribe=topic, startingOffsets="latest")
    reader: Any = found.streamReader(found.schema())
    before = reader.initialOffset()
    writer = source(topic=topic).streamWriter(KEY_VALUE, False)
    writer.commit([write(writer)], 0)
    then = reader.latestOffset(before, reader.getDefaultReadLimit())
    assert read(reader, reader.partitions(before, then)) == dict(zip(*ROWS.values(), strict=True))
    reader.commit(then)
    reader.stop()
