"""Decodes the keys and values of internal topics and of control records with the classes of stored
records. Content comes from a disk: an undecodable record becomes a complaint, never an exception.
"""

import base64
import re
import struct
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from moldau.protocol import log_records, messages
from moldau.protocol.errors import MalformedRequestError, MoldauError
from moldau.protocol.wire.codec import decode
from moldau.protocol.wire.schema import (
    BYTES,
    RECORDS,
    UUID,
    Message,
    Plan,
    Step,
    build_plan,
    is_default,
)
from moldau.storage.inspection.items import Decoded
from moldau.storage.inspection.options import Decoding
from moldau.types import Uuid, uuid_text

_INT16 = struct.Struct(">h")
_CONTROL_KEY = struct.Struct(">hh")
_FRAME_VERSION = 1
_UNKNOWN_CONTROL = -1
_HIDDEN = "***"
_SECRET_CONFIGS = re.compile(r"password|secret|jaas|keystore\.key", re.IGNORECASE)

ClassOf = Callable[[int], type[Message]]
_COORDINATORS: dict[Decoding, tuple[ClassOf, ClassOf]] = {
    Decoding.OFFSETS: (log_records.group_key_class, log_records.group_value_class),
    Decoding.TRANSACTIONS: (log_records.transaction_key_class, log_records.transaction_value_class),
    Decoding.SHARE: (log_records.share_key_class, log_records.share_value_class),
}
_BY_TOPIC = {
    "__consumer_offsets": Decoding.OFFSETS,
    "__transaction_state": Decoding.TRANSACTIONS,
    "__cluster_metadata": Decoding.METADATA,
    "__share_group_state": Decoding.SHARE,
}
_CONTROLS = {
    0: ("ABORT", "EndTxnMarker"),
    1: ("COMMIT", "EndTxnMarker"),
    2: ("LeaderChange", "LeaderChangeMessage"),
    3: ("SnapshotHeader", "SnapshotHeaderRecord"),
    4: ("SnapshotFooter", "SnapshotFooterRecord"),
    5: ("KRaftVersion", "KRaftVersionRecord"),
    6: ("KRaftVoters", "VotersRecord"),
}
_MARKERS = frozenset({0, 1})


def decoding_for_topic(topic: str | None) -> Decoding:
    return _BY_TOPIC.get(topic or "", Decoding.NONE)


class DecodedRecord(NamedTuple):
    key: Decoded | None = None
    value: Decoded | None = None
    complaint: str | None = None
    control_type: int = _UNKNOWN_CONTROL


class RecordDecoder:
    """Decodes the records of one topic."""

    SNAPSHOT_HEADER: ClassVar[int] = 3
    SNAPSHOT_FOOTER: ClassVar[int] = 4

    def __init__(self, decoding: Decoding, *, secrets: bool) -> None:
        self._decoding = decoding
        self._secrets = secrets

    @property
    def is_needed(self) -> bool:
        """Whether plain records can be wrong in this topic."""
        return self._decoding is Decoding.METADATA or self._decoding in _COORDINATORS

    def decode(self, key: bytes | None, value: bytes | None, *, is_control: bool) -> DecodedRecord:
        try:
            if is_control:
                return self._control(key, value)
            if self._decoding is Decoding.METADATA:
                return self._metadata(value)
            if self._decoding in _COORDINATORS:
                return self._coordinator(key, value)
        except (MoldauError, struct.error) as error:
            return DecodedRecord(complaint=f"cannot be decoded: {error}")
        return DecodedRecord()

    def _control(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        _, control_type = _CONTROL_KEY.unpack_from(key or b"")
        known = _CONTROLS.get(control_type)
        if known is None:
            # Readers skip unknown control types; so do we.
            name = Decoded("UnknownControl", 0, {}, control_type)
            return DecodedRecord(name, None, None, control_type)
        name_text, class_name = known
        key_found = Decoded(name_text, 0, {}, control_type)
        if value is None:
            return DecodedRecord(key_found, None, f"{name_text} has no value", control_type)
        (version,) = _INT16.unpack_from(value)
        # A marker has its version before its body; the others have it as their first field.
        body = value[_INT16.size :] if control_type in _MARKERS else value
        message_class = log_records.message_class(class_name)
        version = min(version, message_class.VERSIONS[1])
        found = self._message(message_class, version, body)
        return DecodedRecord(key_found, found, None, control_type)

    def _metadata(self, value: bytes | None) -> DecodedRecord:
        if value is None:
            return DecodedRecord(complaint="a metadata record without a value")
        frame, position = _read_varint(value, 0)
        if frame != _FRAME_VERSION:
            return DecodedRecord(complaint=f"unknown metadata frame version {frame}")
        record_type, position = _read_varint(value, position)
        version, position = _read_varint(value, position)
        try:
            message_class = log_records.metadata_record_class(record_type)
        except KeyError:
            return DecodedRecord(complaint=f"unknown metadata record type {record_type}")
        return DecodedRecord(value=self._message(message_class, version, value[position:]))

    def _coordinator(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        key_class_of, value_class_of = _COORDINATORS[self._decoding]
        if key is None:
            return DecodedRecord(complaint="a coordinator's record without a key")
        (record_type,) = _INT16.unpack_from(key)
        try:
            key_class, value_class = key_class_of(record_type), value_class_of(record_type)
        except KeyError:
            return DecodedRecord(complaint=f"unknown record type {record_type}")
        key_found = self._message(key_class, 0, key[_INT16.size :])
        if value is None:
            return DecodedRecord(key_found)
        (version,) = _INT16.unpack_from(value)
        return DecodedRecord(key_found, self._message(value_class, version, value[_INT16.size :]))

    def _message(self, message_class: type[Message], version: int, body: bytes) -> Decoded:
        message = decode(message_class, version, body)
        plan = build_plan(message_class, version)
        fields = fields_of(message, plan, secrets=self._secrets)
        if message_class.__name__ == "GroupMetadataValue" and (
            fields.get("protocolType") == "consumer"
        ):
            for member in fields["members"]:
                _expand(member, "subscription", "ConsumerProtocolSubscription")
                _expand(member, "assignment", "ConsumerProtocolAssignment")
        elif message_class.__name__ == "ConfigRecord":
            is_secret = _SECRET_CONFIGS.search(fields["name"]) and not self._secrets
            fields["value"] = _HIDDEN if is_secret else fields["value"]
        return Decoded(message_class.__name__, version, fields, message_class.API_KEY)


def fields_of(message: Any, plan: Plan, *, secrets: bool) -> dict[str, Any]:
    """As Apache's JSON converters write it: camelCase, base64, tagged fields only if set."""
    rows = plan.struct_class.FIELDS
    hidden = set() if secrets else {name for name, *_, flags in rows if "s" in flags}
    fields: dict[str, Any] = {}
    steps = {step.name: step for step in (*plan.steps, *plan.tagged)}
    for name, *_ in rows:
        step = steps.get(name)
        if step is None:
            continue
        content = getattr(message, step.name)
        if step.tag >= 0 and is_default(step, content):
            continue
        fields[_camel(step.name)] = (
            _HIDDEN if step.name in hidden else _plain(content, step, secrets=secrets)
        )
    return fields


def _plain(content: Any, step: Step, *, secrets: bool) -> Any:
    if content is None:
        return None
    if step.is_array:
        return [_plain_element(element, step, secrets=secrets) for element in content]
    return _plain_element(content, step, secrets=secrets)


def _plain_element(content: Any, step: Step, *, secrets: bool) -> Any:
    if step.plan is not None:
        return fields_of(content, step.plan, secrets=secrets)
    if step.kind == UUID:
        return uuid_text(Uuid(content))
    if step.kind in {BYTES, RECORDS}:
        return base64.b64encode(content).decode("ascii")
    return content


def _expand(member: dict[str, Any], field: str, class_name: str) -> None:
    """Decodes the consumer's own message inside the group's record; undecodable bytes
    stay bytes.
    """
    content = base64.b64decode(member[field])
    if len(content) < _INT16.size:
        return
    message_class = messages.message_class(class_name)
    (version,) = _INT16.unpack_from(content)
    version = min(version, message_class.VERSIONS[1])
    try:
        inner = decode(message_class, version, content[_INT16.size :])
    except MoldauError:
        return
    member[field] = fields_of(inner, build_plan(message_class, version), secrets=False)


def _camel(name: str) -> str:
    # Kafka's names use KRaft; ours never split it.
    head, *rest = name.replace("kraft", "kRaft").split("_")
    return head + "".join(part.capitalize() for part in rest)


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(content):
            break
        byte = content[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise MalformedRequestError("a number is cut off or too long")
