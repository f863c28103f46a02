"""Prepares records before they are appended: interceptors, serializers, headers, custom
partitioners. Runs in the user's thread.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Any, NamedTuple, TypeAlias

from moldau.client.cluster.interceptors import interceptors_of, notify
from moldau.client.errors import ClientError, ConfigError, did_you_mean
from moldau.client.producer.serializers import as_bytes, serializer_of
from moldau.config.client_settings.producer import ProducerConfig
from moldau.core.producer.batching import Delivery
from moldau.core.producer.partitioners import (
    JAVA_NAMES,
    PARTITIONER_NAMES,
    Partitioner,
    named_partitioner,
)
from moldau.types import INT32_MAX, INT64_MAX

Headers: TypeAlias = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
_KEY_BYTES, _VALUE_BYTES = as_bytes("key.serializer"), as_bytes("value.serializer")


class ProducerRecord(NamedTuple):
    """A record as the user sends it. Interceptors see it before it is serialized."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Preparation:
    def __init__(
        self, config: ProducerConfig, partition_count: Callable[[str], int | None]
    ) -> None:
        self._key = serializer_of(config.key_serializer, "key.serializer")
        self._value = serializer_of(config.value_serializer, "value.serializer")
        self._interceptors = interceptors_of(config.interceptor_classes)
        self._partitioner = _partitioner(config.partitioner_class)
        self._partition_count = partition_count
        conversions = (self._key, self._value, self._partitioner)
        self.is_plain = not self._interceptors and all(
            conversion is None for conversion in conversions
        )
        """Whether bytes can be appended without any preparation."""

    @property
    def has_interceptors(self) -> bool:
        return bool(self._interceptors)

    def prepare(self, record: ProducerRecord) -> ProducerRecord:
        """The record with key and value in bytes and checked headers, and with a partition if there
        is a custom partitioner and the topic is known.
        """
        for interceptor in self._interceptors:
            record = notify(interceptor, "on_send", record) or record
        if not isinstance(record, ProducerRecord):
            raise ClientError(f"an interceptor returned {record!r}, not a record")
        topic: Any = record.topic
        if not isinstance(topic, str) or not topic:
            raise ClientError(f"expected a topic name, a str that is not empty, got {topic!r}")
        to_key, to_value = self._key or _KEY_BYTES, self._value or _VALUE_BYTES
        key, value = to_key(topic, record.key), to_value(topic, record.value)
        _check_number(record.partition, "partition", INT32_MAX)
        _check_number(record.timestamp, "timestamp", INT64_MAX)
        made = record._replace(key=key, value=value, headers=_headers(record.headers))
        return self.route(made)

    def route(self, record: ProducerRecord) -> ProducerRecord:
        if self._partitioner is None or record.partition is not None:
            return record
        count = self._partition_count(record.topic)
        if count is None:
            return record
        chosen: Any = self._partitioner(record.topic, record.key, record.value, count)
        try:
            number = int(index(chosen))
        except TypeError:
            number = -1
        if not 0 <= number < count:
            raise ClientError(f"the partitioner chose {chosen!r}; {record.topic} has {count}")
        return record._replace(partition=number)

    def acknowledge(self, delivery: Delivery) -> None:
        """Reports an outcome to the interceptors."""
        error = delivery.exception()
        metadata = None if error is not None else delivery.result()
        for interceptor in self._interceptors:
            notify(interceptor, "on_acknowledgement", metadata, error)

    def close(self) -> None:
        for interceptor in self._interceptors:
            notify(interceptor, "close")


def as_lists(
    values: Iterable[Any], keys: Iterable[Any] | None
) -> tuple[list[Any], list[Any] | None]:
    """The values and keys of many records as lists of equal length."""
    made = _as_list("values", values)
    made_keys = None if keys is None else _as_list("keys", keys)
    if made_keys is not None and len(made_keys) != len(made):
        raise ClientError(f"{len(made_keys)} keys for {len(made)} values")
    return made, made_keys


def _as_list(name: str, value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Iterable):
        raise ClientError(
            f"{name} must be a list with an item per record, not {type(value).__name__}"
        )
    return list(value)


def _check_number(value: Any, name: str, most: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ClientError(f"{name}={value!r} is not a number from 0 to {most}")


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    try:
        pairs = [*value.items()] if isinstance(value, Mapping) else [*(value or ())]
        named = [(name, content) for name, content in pairs]
    except (TypeError, ValueError):
        raise ClientError("headers must be pairs of a str and bytes") from None
    made = []
    for name, content in named:
        if not isinstance(name, str):
            raise ClientError(f"the name of a header must be a str, not {type(name).__name__}")
        octets = content.encode() if isinstance(content, str) else content
        if not isinstance(octets, bytes | bytearray | memoryview | None):
            raise ClientError(f"header '{name}' must be bytes or str, not {type(octets).__name__}")
        made.append((name, None if octets is None else bytes(octets)))
    return tuple(made)


def _partitioner(value: Any) -> Partitioner | None:
    if value is None:
        return None
    if isinstance(value, str):
        name = JAVA_NAMES.get(value, value)
        if name not in PARTITIONER_NAMES:
            known = ", ".join(PARTITIONER_NAMES)
            raise ConfigError(
                f"partitioner.class={value}: known are {known}; or give a function"
                f"{did_you_mean(value, PARTITIONER_NAMES)}"
            )
        return named_partitioner(name, random.random)
    if isinstance(value, type):
        value = value()
    if not callable(value):
        raise ConfigError("partitioner.class must be a name or a function")
    made: Partitioner = value
    return made
