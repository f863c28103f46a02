"""Avro, JSON Schema and Protobuf with a schema registry, in Confluent's wire format."""

from moldau.client.schemas.avro import AvroDeserializer, AvroSerializer
from moldau.client.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from moldau.client.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
from moldau.client.schemas.registry import Schema, SchemaError, SchemaRegistry
from moldau.client.schemas.wire import topic_subject

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Schema",
    "SchemaError",
    "SchemaRegistry",
    "topic_subject",
]
