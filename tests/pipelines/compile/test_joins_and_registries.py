"""Joins of streams, and values with a schema id, in Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
from client.registry_server import RegistryServer
from pipelines.at_work import make_topics, records_of, run_once, send, values_of
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau.client.schemas.avro import AvroDeserializer, AvroSerializer
from moldau.client.schemas.json_schema import JsonSchemaDeserializer
from moldau.client.schemas.registry import SchemaRegistry
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

JOINED = """\
name: joined
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  clicks: {{topic: clicks, schema: "ad INT, at TIMESTAMP", start: earliest}}
  views: {{topic: views, schema: "ad INT, seen TIMESTAMP", start: earliest}}
steps:
  hits:
    sql: |
      SELECT c.ad, c.at FROM clicks WATERMARK at DELAY OF INTERVAL 1 MINUTE AS c
      JOIN views WATERMARK seen DELAY OF INTERVAL 1 MINUTE AS v
      ON c.ad = v.ad AND c.at BETWEEN v.seen AND v.seen + INTERVAL 1 HOUR
    into: {{topic: hits, key: ad}}
"""
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
REGISTERED = """\
import moldau.pipelines as mp

settings = mp.pipeline("registered", settings={{"bootstrap.servers": "{bootstrap}"}})
ORDER = {order!r}
orders = mp.topic(
    "registered", format=mp.avro("{url}", "id BIGINT, ts TIMESTAMP"), start="earliest",
    dead_letter="registered.dlq",
)


@mp.flow(into=mp.topic("registered.avro", format=mp.avro("{url}", avro_schema=ORDER), key="id"))
def same(orders):
    return orders


as_json = mp.sql(
    "SELECT id FROM orders",
    into=mp.topic("registered.json", format=mp.json_schema("{url}", json_schema="{{}}")),
)
"""


def test_streams_are_joined(session: Any, node: ThreadBroker, tmp_path: Path) -> None:
    make_topics(node, "clicks", "views")
    send(
        node,
        "views",
        [{"ad": 1, "seen": "2026-11-15T10:00:00Z"}, {"ad": 2, "seen": "2026-11-15T10:00:00Z"}],
    )
    send(
        node,
        "clicks",
        [{"ad": 1, "at": "2026-11-15T10:30:00Z"}, {"ad": 2, "at": "2026-11-15T11:30:00Z"}],
    )
    pipeline = mp.load(written(tmp_path, "joined.yaml", JOINED.format(bootstrap=node.bootstrap)))
    run_once(session, pipeline, tmp_path)
    assert [row["ad"] for row in values_of(session, node, "hits")] == [1]


def test_values_with_a_schema_id(session: Any, node: ThreadBroker, tmp_path: Path) -> None:
    make_topics(node, "registered")
    with RegistryServer() as server:
        registry = SchemaRegistry(server.url)
        write = AvroSerializer(registry, json.dumps(ORDER))
        value = write("registered", {"id": 7, "ts": 1_763_200_000_000})
        send(node, "registered", [value, b"no avro"])
        content = REGISTERED.format(
            bootstrap=node.bootstrap, url=server.url, order=json.dumps(ORDER)
        )
        run_once(session, mp.load(written(tmp_path, "registered.py", content)), tmp_path)
        ((key, avro, _),) = records_of(session, node, "registered.avro")
        assert (key, avro) == (b"7", value)
        assert AvroDeserializer(registry)(avro)["id"] == 7
        ((_, text, _),) = records_of(session, node, "registered.json")
        assert JsonSchemaDeserializer(registry)(text) == {"id": 7}
    assert [value for _, value, _ in records_of(session, node, "registered.dlq")] == [b"no avro"]
