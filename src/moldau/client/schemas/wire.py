"""Confluent's wire format: a zero byte, the id of the schema in four bytes, the value."""

from collections.abc import Callable
from typing import TypeAlias

from moldau.client.errors import ConfigError
from moldau.client.schemas.registry import Schema, SchemaError, SchemaRegistry

MAGIC = 0
HEAD_BYTES = 5
SubjectNaming: TypeAlias = Callable[[str, bool], str]
"""Names the subject for a topic and `is_key`, which says whether keys are serialized."""


def topic_subject(topic: str, is_key: bool) -> str:
    """Names the subject of a topic's keys or values, as Confluent's TopicNameStrategy does.

    Args:
        topic: Name of the topic.
        is_key: Whether keys are serialized.

    Returns:
        `"orders-key"` or `"orders-value"` for the topic `orders`.
    """
    return f"{topic}-{'key' if is_key else 'value'}"


def head(schema_id: int) -> bytes:
    return bytes([MAGIC]) + schema_id.to_bytes(4, "big")


def schema_id_of(content: bytes) -> int:
    if len(content) < HEAD_BYTES or content[0] != MAGIC:
        raise SchemaError("the value has no schema id: it was not written with a registry")
    return int.from_bytes(content[1:HEAD_BYTES], "big")


class Registration:
    """The ids of schemas for topics, registered or looked up once."""

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        is_key: bool,
        auto_register: bool,
        subject: SubjectNaming | None,
    ) -> None:
        self._registry = registry
        self._is_key = is_key
        self._auto_register = auto_register
        self._subject = subject or topic_subject
        self._heads: dict[tuple[str, Schema], bytes] = {}

    def head_of(self, topic: str, schema: Schema) -> bytes:
        found = self._heads.get((topic, schema))
        if found is None:
            subject = self._subject(topic, self._is_key)
            id_of = self._registry.register if self._auto_register else self._registry.lookup
            found = self._heads[topic, schema] = head(id_of(subject, schema))
        return found


def missing_extra(package: str, extra: str) -> ConfigError:
    return ConfigError(f"this needs {package}: pip install 'moldau[{extra}]'")


def wrong_value(error: Exception) -> SchemaError:
    text = str(error).splitlines()
    return SchemaError(f"the value does not fit its schema: {text[0] if text else type(error)}")
