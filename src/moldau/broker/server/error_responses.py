"""The response that reports one error for a whole request in the form that Kafka's clients expect:
once for each topic, partition, group or resource of the request, or once at the top level if
there are none.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages import response_class
from moldau.protocol.wire.schema import (
    FIELD_NAME,
    FIELD_VERSIONS,
    Message,
    Struct,
    contains,
    struct_named,
)

# The protocol has several names for the same field.
_PARTITION_NAMES = ("index", "partition_index", "partition", "partition_id")
_TOPIC_NAMES = ("name", "topic", "topic_name")
_DEEPEST = 4

INVALID_REQUEST_MESSAGE = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)
"""Kafka's default messages of errors."""


def error_response(
    request: Message, version: int, code: ErrorCode, detail: str = ""
) -> Message | None:
    """None if the response has no field for an error code, or no response is expected."""
    if request.API_KEY == ApiKey.PRODUCE and getattr(request, "acks", None) == 0:
        return None
    answer_class = response_class(request.API_KEY)
    builder = _ResponseBuilder(version, code, detail)
    values = builder.mirrored(request, answer_class, depth=0)
    if not builder.is_reported and _field_in(answer_class, "error_code", version):
        values |= builder.error_fields(answer_class)
        builder.is_reported = True
    return answer_class(**values) if builder.is_reported else None


def _field_in(part: type[Struct], name: str, version: int) -> bool:
    return any(
        row[FIELD_NAME] == name and contains(row[FIELD_VERSIONS], version) for row in part.FIELDS
    )


class _Shape(NamedTuple):
    """The fields by which a part of a response mirrors a part of a request: computed once, since a
    request may have very many such parts.
    """

    lists: list[tuple[str, type[Struct]]]
    """Lists of elements with errors, in order, and their element types."""
    same: list[tuple[str, tuple[str, ...]]]
    """Fields that are copied, and their possible names in the request."""
    errors: dict[str, Any]
    """The error fields on this level."""


class _ResponseBuilder:
    def __init__(self, version: int, code: ErrorCode, detail: str) -> None:
        self.version = version
        self.code = code
        self.detail = detail
        self.is_reported = False
        self._shapes: dict[tuple[int, int], _Shape] = {}
        """By the identities of both classes."""

    def error_fields(self, part: type[Struct]) -> dict[str, Any]:
        fields: dict[str, Any] = {"error_code": self.code}
        if self.detail and _field_in(part, "error_message", self.version):
            fields["error_message"] = self.detail
        return fields

    def mirrored(self, requested: Struct, answer: type[Struct], depth: int) -> dict[str, Any]:
        """Fields of the response that mirror the request: same names, and lists of elements with
        errors.
        """
        shape = self._shape(type(requested), answer)
        values: dict[str, Any] = {}
        if depth:
            for name, names in shape.same:
                value = _first_value(requested, names)
                if value is not None:
                    values[name] = value
            values |= shape.errors
            self.is_reported = self.is_reported or bool(shape.errors)
        if shape.lists:
            given = [
                value
                for row in requested.FIELDS
                if isinstance(value := getattr(requested, row[FIELD_NAME]), list) and value
            ]
            for (name, part), elements in zip(shape.lists, given, strict=False):
                values[name] = [self._element(each, part, depth + 1) for each in elements]
        return values

    def _element(self, requested: Any, part: type[Struct], depth: int) -> Struct:
        if isinstance(requested, Struct):
            return part(**self.mirrored(requested, part, depth))
        shape = self._shape(type(requested), part)
        ((name, _),) = shape.same
        self.is_reported = self.is_reported or bool(shape.errors)
        return part(**{name: requested}, **shape.errors)

    def _shape(self, requested: type, answer: type[Struct]) -> _Shape:
        key = (id(requested), id(answer))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._new_shape(requested, answer)
        return shape

    def _new_shape(self, requested: type, answer: type[Struct]) -> _Shape:
        errors: dict[str, Any] = {}
        if _field_in(answer, "error_code", self.version):
            errors = self.error_fields(answer)
        if not issubclass(requested, Struct):
            return _Shape([], [(_first_field(answer, requested), ())], errors)
        lists: list[tuple[str, type[Struct]]] = []
        same: list[tuple[str, tuple[str, ...]]] = []
        known = {row[FIELD_NAME] for row in requested.FIELDS}
        for name, kind, versions, *_ in answer.FIELDS:
            if kind.startswith("[]") and kind[2:3].isupper() and contains(versions, self.version):
                part = struct_named(answer, kind[2:])
                if self._reports_errors(part, _DEEPEST):
                    lists.append((name, part))
            elif not kind.startswith("[]") and not kind[:1].isupper():
                names = tuple(other for other in _aliases_of(name) if other in known)
                if names:
                    same.append((name, names))
        return _Shape(lists, same, errors)

    def _reports_errors(self, part: type[Struct], levels: int) -> bool:
        if _field_in(part, "error_code", self.version):
            return True
        return levels > 0 and any(
            self._reports_errors(struct_named(part, wire_type[2:]), levels - 1)
            for _, wire_type, *_ in part.FIELDS
            if wire_type.startswith("[]") and wire_type[2:3].isupper()
        )


def _aliases_of(name: str) -> Iterator[str]:
    for names in (_PARTITION_NAMES, _TOPIC_NAMES, (name,)):
        if name in names:
            yield from names


def _first_value(requested: Struct, names: tuple[str, ...]) -> Any:
    for name in names:
        value = getattr(requested, name)
        if value is not None and not isinstance(value, list | Struct):
            return value
    return None


def _first_field(part: type[Struct], kind: type) -> str:
    """The field for a bare partition number or name."""
    kind_name = "string" if kind is str else "int32"
    return next(
        name
        for name, wire_type, *_ in part.FIELDS
        if wire_type == kind_name and name != "error_message"
    )
