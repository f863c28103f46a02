"""Records as JSON objects: `moldau produce --json` reads the output of `moldau consume --json`.
Bytes that are not UTF-8 are in base64, under names that say so.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple

import typer

from moldau.cli.shared.escaping import json_text, utf8_text
from moldau.cli.shared.parsing import parse_time_ms
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.types import TopicPartition

_BASE64 = "Base64"
_KNOWN = {
    "key", "keyBase64", "value", "valueBase64", "headers", "partition", "timestamp",
    # Added by `consume` to say where a record came from; ignored.
    "topic", "offset",
}  # fmt: skip


class NotARecordError(ValueError):
    """A line that cannot be a record; the message says why."""


class InputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def record_line(partition: TopicPartition, record: ConsumerRecord) -> str:
    fields: dict[str, Any] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_content("key", record.key),
        **_content("value", record.value),
        "headers": [[name, _header_content(content)] for name, content in record.headers],
    }
    return json_text(fields)


def _content(name: str, content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {name: None}
    text = utf8_text(content)
    if text is not None:
        return {name: text}
    return {name + _BASE64: base64.b64encode(content).decode("ascii")}


def _header_content(content: bytes | None) -> Any:
    if content is None:
        return None
    text = utf8_text(content)
    return {"base64": base64.b64encode(content).decode("ascii")} if text is None else text


def parse_record(line: bytes) -> InputRecord:
    """Raises NotARecordError."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise NotARecordError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise NotARecordError("not a JSON object")
    if unknown := set(fields) - _KNOWN:
        raise NotARecordError(f"unknown field '{min(unknown)}'")
    partition = fields.get("partition")
    if partition is not None and not (isinstance(partition, int) and partition >= 0):
        raise NotARecordError(f"'{partition}' is not a partition")
    return InputRecord(
        _bytes(fields, "key"),
        _bytes(fields, "value"),
        _headers(fields.get("headers") or []),
        partition,
        _timestamp(fields.get("timestamp")),
    )


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    if name + _BASE64 in fields:
        return _from_base64(fields[name + _BASE64])
    content = fields.get(name)
    if content is None or isinstance(content, str):
        return None if content is None else content.encode()
    # A JSON document as the key or value.
    return json_text(content).encode()


def _from_base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise NotARecordError(f"'{text}' is not base64") from None


def _headers(field: Any) -> tuple[tuple[str, bytes | None], ...]:
    pairs = list(field.items()) if isinstance(field, dict) else field
    if not isinstance(pairs, list):
        raise NotARecordError("headers are neither an object nor a list of pairs")
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        match pair:
            case (str(name), None):
                headers.append((name, None))
            case (str(name), str(text)):
                headers.append((name, text.encode()))
            case (str(name), {"base64": str(text)}):
                headers.append((name, _from_base64(text)))
            case _:
                raise NotARecordError(f"{json_text(pair)} is not a header")
    return tuple(headers)


def _timestamp(field: Any) -> int | None:
    if field is None:
        return None
    if isinstance(field, int) and not isinstance(field, bool):
        return field
    if isinstance(field, str):
        try:
            return parse_time_ms(field)
        except typer.BadParameter as error:
            raise NotARecordError(str(error)) from None
    raise NotARecordError(f"'{field}' is not a time")
