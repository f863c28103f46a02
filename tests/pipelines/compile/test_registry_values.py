"""Values with a schema id, as tasks read and write them, without Spark."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from client.registry_server import RegistryServer

from moldau.core.pipelines.graph import FormatKind
from moldau.pipelines.compile.registry_values import FromRow, RegistryFormat, ToJson, message_class
from moldau.protocol.errors import MoldauError

pytest.importorskip("pyspark")
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "inner",
                "type": {
                    "type": "record",
                    "name": "I",
                    "fields": [{"name": "x", "type": "string"}],
                },
            },
        ],
    }
)
TIMES = json.dumps(
    {
        "type": "record",
        "name": "Times",
        "fields": [
            {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {
                "name": "many",
                "type": {
                    "type": "array",
                    "items": {"type": "long", "logicalType": "timestamp-micros"},
                },
            },
        ],
    }
)
KINDS: dict[str, DataType] = {
    "bigint": LongType(),
    "bytes": BinaryType(),
    "timestamp": TimestampType(),
    "timestamps": ArrayType(TimestampType()),
    "local": TimestampNTZType(),
}
JSON = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})


def kind_of(columns: str) -> StructType:
    """Spark's own parser is in the JVM."""
    pairs = [one.split() for one in columns.split(",")]
    return StructType([StructField(name, KINDS.get(kind, StringType())) for name, kind in pairs])


@pytest.fixture
def registry() -> Iterator[str]:
    with RegistryServer() as server:
        yield server.url


def both_ways(form: RegistryFormat, row: Any, columns: str) -> Any:
    written = FromRow(form, "orders", kind_of(columns))(row)
    assert written is not None
    assert written[:1] == b"\0"
    text, problem = ToJson(form)(written)
    assert problem is None
    assert text is not None
    return json.loads(text)


def test_avro(registry: str) -> None:
    row = Row(id=7, ts=datetime(2026, 11, 15, tzinfo=UTC), inner=Row(x="y"))
    form = RegistryFormat(FormatKind.AVRO, registry, AVRO)
    found = both_ways(form, row, "id bigint, ts timestamp, inner text")
    assert found == {"id": 7, "ts": "2026-11-15T00:00:00+00:00", "inner": {"x": "y"}}


def test_json_with_a_schema_id(registry: str) -> None:
    form = RegistryFormat(FormatKind.JSON_SCHEMA, registry, JSON)
    assert both_ways(form, Row(id=7, missing=None), "id bigint, missing text") == {"id": 7}


def test_protobuf(registry: str) -> None:
    name = "google.protobuf.type_pb2:Option"
    form = RegistryFormat(FormatKind.PROTOBUF, registry, name)
    assert both_ways(form, Row(name="n", value=None), "name text, value text") == {"name": "n"}


def test_invalid_values_are_errors(registry: str) -> None:
    read = ToJson(RegistryFormat(FormatKind.AVRO, registry, ""))
    assert read(None) == (None, None)
    assert read(b"plain")[1] == "the value has no schema id: it was not written with a registry"


def test_a_missing_message_class_is_an_error() -> None:
    with pytest.raises(MoldauError, match=r"write package\.module_pb2:Message"):
        message_class("nowhere_pb2:Message")


def protobuf_class() -> Any:
    """A class as protoc generates it: a timestamp, and bytes."""
    file = descriptor_pb2.FileDescriptorProto(
        name="moment.proto", package="moldau.tests", syntax="proto3",
        dependency=[timestamp_pb2.DESCRIPTOR.name],
    )  # fmt: skip
    message = file.message_type.add(name="Moment")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(
        name="ts", number=1, label=field.LABEL_OPTIONAL, type=field.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    message.field.add(name="raw", number=2, label=field.LABEL_OPTIONAL, type=field.TYPE_BYTES)
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("moldau.tests.Moment"))


Moment = protobuf_class()


@pytest.fixture(params=["America/New_York", "Asia/Kolkata", "UTC"])
def machine_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("machine_zone")
def test_timestamps_do_not_depend_on_the_zone_of_a_tasks_machine(registry: str) -> None:
    """Spark passes them without a zone, in local time; in New York these two look the same."""
    moments = [datetime(2026, 11, 1, hour, 30, 0, 5, tzinfo=UTC) for hour in (5, 6)]
    given = [datetime.fromtimestamp(one.timestamp()) for one in moments]  # noqa: DTZ006
    told = [one.isoformat() for one in moments]
    avro = RegistryFormat(FormatKind.AVRO, registry, TIMES)
    for moment, text in zip(given, told, strict=True):
        row = Row(ts=moment, many=given)
        assert both_ways(avro, row, "ts timestamp, many timestamps") == {"ts": text, "many": told}
        form = RegistryFormat(FormatKind.JSON_SCHEMA, registry, "{}")
        row = Row(ts=moment, many=given, local=given[0])
        found = both_ways(form, row, "ts timestamp, many timestamps, local local")
        assert found == {"ts": text, "many": told, "local": given[0].isoformat()}
        form = RegistryFormat(FormatKind.PROTOBUF, registry, f"{__name__}:Moment")
        found = both_ways(form, Row(ts=moment, raw=b"\xff\xfe"), "ts timestamp, raw bytes")
        assert found == {"ts": text, "raw": "//4="}
