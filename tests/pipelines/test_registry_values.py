"""Values behind a schema id, as tasks read and write them; without Spark."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from client.registry_server import RegistryServer

from moldau.core.pipelines.graph import FormatKind
from moldau.pipelines.registry_values import FromRow, RegistryFormat, ToJson, message_class
from moldau.protocol.errors import MoldauError

pytest.importorskip("pyspark")
from pyspark.sql import Row

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
JSON = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})


@pytest.fixture
def registry() -> Iterator[str]:
    with RegistryServer() as server:
        yield server.url


def both_ways(form: RegistryFormat, row: Any) -> Any:
    written = FromRow(form, "orders")(row)
    assert written is not None
    assert written[:1] == b"\0"
    text, problem = ToJson(form)(written)
    assert problem is None
    assert text is not None
    return json.loads(text)


def test_avro(registry: str) -> None:
    row = Row(id=7, ts=datetime(2026, 11, 15, tzinfo=UTC), inner=Row(x="y"))
    found = both_ways(RegistryFormat(FormatKind.AVRO, registry, AVRO), row)
    assert found == {"id": 7, "ts": "2026-11-15T00:00:00+00:00", "inner": {"x": "y"}}


def test_json_behind_a_schema_id(registry: str) -> None:
    form = RegistryFormat(FormatKind.JSON_SCHEMA, registry, JSON)
    assert both_ways(form, Row(id=7, missing=None)) == {"id": 7}


def test_protobuf(registry: str) -> None:
    name = "google.protobuf.type_pb2:Option"
    form = RegistryFormat(FormatKind.PROTOBUF, registry, name)
    assert both_ways(form, Row(name="n", value=None)) == {"name": "n"}


def test_bytes_that_are_none(registry: str) -> None:
    read = ToJson(RegistryFormat(FormatKind.AVRO, registry, ""))
    assert read(None) == (None, None)
    assert read(b"plain")[1] == "the value has no schema id: it was not written with a registry"


def test_a_message_that_is_not_there() -> None:
    with pytest.raises(MoldauError, match=r"write package\.module_pb2:Message"):
        message_class("nowhere_pb2:Message")
