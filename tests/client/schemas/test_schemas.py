"""Values with schemas: confluent-kafka reads what we write, and the reverse."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from client.clusters import fresh_topic
from client.produced import PATIENCE_S, producer_of, stored
from client.registry_server import RegistryServer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry import avro as peer_avro
from confluent_kafka.schema_registry import json_schema as peer_json
from confluent_kafka.schema_registry import protobuf as peer_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from moldau.errors import ConfigError
from moldau.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaError,
    SchemaRegistry,
)
from moldau.testing import ThreadBroker

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
        "required": ["name"],
    }
)
PERSON = {"name": "Božena", "age": 42}
HERE = SerializationContext("people", MessageField.VALUE)


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url)


@pytest.fixture
def peer(server: RegistryServer) -> Any:
    return SchemaRegistryClient({"url": server.url})


def messages() -> tuple[Any, Any]:
    """A message class, and a nested one that uses another file."""
    pool = descriptor_pool.DescriptorPool()
    base = descriptor_pb2.FileDescriptorProto(name="base.proto", package="p", syntax="proto3")
    named = base.message_type.add(name="Named")
    named.field.add(name="name", number=1, type=9, label=1)
    file = descriptor_pb2.FileDescriptorProto(name="outer.proto", package="p", syntax="proto3")
    file.dependency.append("base.proto")
    file.message_type.add(name="First")
    outer = file.message_type.add(name="Outer")
    outer.nested_type.add(name="Unused")
    inner = outer.nested_type.add(name="Inner")
    inner.field.add(name="who", number=1, type=11, label=1, type_name=".p.Named")
    for each in (base, file):
        pool.AddSerializedFile(each.SerializeToString())
    return (
        message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Named")),
        message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Outer.Inner")),
    )


def test_avro_agrees_with_confluent(registry: SchemaRegistry, peer: Any) -> None:
    ours = AvroSerializer(registry, AVRO)("people", PERSON)
    theirs = peer_avro.AvroSerializer(peer, AVRO)(PERSON, HERE)
    assert ours is not None
    assert ours[5:] == theirs[5:]
    assert peer_avro.AvroDeserializer(peer)(ours, HERE) == PERSON
    assert AvroDeserializer(registry)(theirs) == PERSON


def test_avro_is_read_as_a_newer_schema(registry: SchemaRegistry) -> None:
    newer = json.loads(AVRO)
    newer["fields"].append({"name": "city", "type": "string", "default": "Praha"})
    content = AvroSerializer(registry, AVRO)("people", PERSON)
    assert content is not None
    found = AvroDeserializer(registry, json.dumps(newer))(content)
    assert found == PERSON | {"city": "Praha"}


def test_json_agrees_with_confluent(registry: SchemaRegistry, peer: Any) -> None:
    ours = JsonSchemaSerializer(registry, JSON)("people", PERSON)
    theirs = peer_json.JSONSerializer(JSON, peer)(PERSON, HERE)
    assert ours is not None
    assert ours[:5] == theirs[:5]
    assert json.loads(ours[5:]) == json.loads(theirs[5:])
    assert peer_json.JSONDeserializer(JSON)(ours, HERE) == PERSON
    assert JsonSchemaDeserializer(registry)(theirs) == PERSON


def test_protobuf_agrees_with_confluent(registry: SchemaRegistry, peer: Any) -> None:
    named, inner = messages()
    theirs = b""
    for kind, value in ((named, named(name="x")), (inner, inner(who=named(name="y")))):
        ours = ProtobufSerializer(registry, kind)("people", value)
        options = {"use.deprecated.format": False}
        theirs = peer_protobuf.ProtobufSerializer(kind, peer, options)(value, HERE)
        assert ours is not None
        assert ours[5:] == theirs[5:]
        assert peer_protobuf.ProtobufDeserializer(kind, options)(ours, HERE) == value
        assert ProtobufDeserializer(kind)(theirs) == value
    with pytest.raises(SchemaError, match="a different message"):
        ProtobufDeserializer(named)(theirs)


def test_a_schema_is_requested_once(server: RegistryServer, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, AVRO)
    reader = AvroDeserializer(registry)
    for _ in range(10):
        content = serializer("people", PERSON)
        assert content is not None
        reader(content)
    assert server.requests == 2
    assert serializer("people", None) is None
    assert list(server.subjects) == ["people-value"]
    AvroSerializer(registry, AVRO, is_key=True)("people", PERSON)
    assert list(server.subjects) == ["people-value", "people-key"]


def test_wrong_schemas_and_values_are_errors(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    serializer = AvroSerializer(registry, AVRO)
    for wrong in ({"name": 5, "age": 1}, {"name": "x"}, 7):
        with pytest.raises(SchemaError, match="does not fit its schema"):
            serializer("people", wrong)
    with pytest.raises(SchemaError, match="does not fit"):
        JsonSchemaSerializer(registry, JSON)("people", {"age": 1})
    with pytest.raises(SchemaError, match="not an Avro schema"):
        AvroSerializer(registry, "{}")
    with pytest.raises(SchemaError, match="no schema id"):
        AvroDeserializer(registry)(b"plain")
    with pytest.raises(SchemaError, match="Schema not found"):
        AvroDeserializer(registry)(b"\0\0\0\0\x63x")
    with pytest.raises(SchemaError, match="not found"):
        AvroSerializer(registry, AVRO, auto_register=False)("elsewhere", PERSON)
    with pytest.raises(SchemaError, match="not a class that protoc"):
        ProtobufSerializer(registry, dict)
    with pytest.raises(SchemaError, match="no answer from the registry"):
        SchemaRegistry("http://127.0.0.1:1").schema(1)
    with pytest.raises(SchemaError, match="write http"):
        SchemaRegistry("127.0.0.1:8081")


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("fastavro", lambda registry: AvroSerializer(registry, AVRO)),
        ("jsonschema", lambda registry: JsonSchemaSerializer(registry, JSON)),
        ("google.protobuf.message", lambda registry: ProtobufSerializer(registry, dict)),
    ],
)
def test_a_missing_extra_is_named_in_the_error(
    registry: SchemaRegistry, module: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install 'moldau\["):
        make(registry)


def test_a_producer_writes_with_a_schema(node: ThreadBroker, registry: SchemaRegistry) -> None:
    topic = fresh_topic(node)
    with producer_of(node, value_serializer=AvroSerializer(registry, AVRO)) as producer:
        producer.send(topic, PERSON, b"key").result(PATIENCE_S)
        with pytest.raises(SchemaError):
            producer.send(topic, {"name": 5})
    (record,) = stored(node, topic)[0]
    assert AvroDeserializer(registry)(record.value or b"") == PERSON
