"""The answer that says one error about a whole request: as Kafka's clients expect it, once for each
topic, partition, group or resource that they asked about, or once at the top if there are none.
"""

from typing import Any

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages import response_class
from moldau.protocol.schema import Message, Struct, contains, struct_named

# One thing has several names in the protocol.
_PARTITION_NAMES = ("index", "partition_index", "partition", "partition_id")
_TOPIC_NAMES = ("name", "topic", "topic_name")
_DEEPEST = 4


def error_response(
    request: Message, version: int, code: ErrorCode, detail: str = ""
) -> Message | None:
    """None if the answer has no place for an error code, or nobody waits for one."""
    if request.API_KEY == ApiKey.PRODUCE and getattr(request, "acks", None) == 0:
        return None
    answer_class = response_class(request.API_KEY)
    teller = _Teller(version, code, detail)
    values = teller.mirrored(request, answer_class, depth=0)
    if not teller.is_told and _field_in(answer_class, "error_code", version):
        values |= teller.error_fields(answer_class)
        teller.is_told = True
    return answer_class(**values) if teller.is_told else None


def _field_in(part: type[Struct], name: str, version: int) -> bool:
    return any(row[0] == name and contains(row[2], version) for row in part.FIELDS)


class _Teller:
    def __init__(self, version: int, code: ErrorCode, detail: str) -> None:
        self.version = version
        self.code = code
        self.detail = detail
        self.is_told = False

    def error_fields(self, part: type[Struct]) -> dict[str, Any]:
        fields: dict[str, Any] = {"error_code": self.code}
        if self.detail and _field_in(part, "error_message", self.version):
            fields["error_message"] = self.detail
        return fields

    def mirrored(self, asked: Struct, answer: type[Struct], depth: int) -> dict[str, Any]:
        """Fields of the answer for what was asked: same names, and lists of things with errors."""
        values: dict[str, Any] = {}
        lists = [
            value
            for row in asked.FIELDS
            if isinstance(value := getattr(asked, row[0]), list) and value
        ]
        for name, kind, versions, *_ in answer.FIELDS:
            if kind.startswith("[]") and kind[2:3].isupper() and contains(versions, self.version):
                part = struct_named(answer, kind[2:])
                if lists and self._tells_errors(part, _DEEPEST):
                    elements = lists.pop(0)
                    values[name] = [self._element(each, part, depth + 1) for each in elements]
            elif depth and (found := _same(asked, name, kind)) is not None:
                values[name] = found
        return values

    def _tells_errors(self, part: type[Struct], levels: int) -> bool:
        if _field_in(part, "error_code", self.version):
            return True
        return levels > 0 and any(
            self._tells_errors(struct_named(part, row[1][2:]), levels - 1)
            for row in part.FIELDS
            if row[1].startswith("[]") and row[1][2:3].isupper()
        )

    def _element(self, asked: Any, part: type[Struct], depth: int) -> Struct:
        values = (
            self.mirrored(asked, part, depth)
            if isinstance(asked, Struct)
            else {_first_field(part, asked): asked}
        )
        if _field_in(part, "error_code", self.version):
            values |= self.error_fields(part)
            self.is_told = True
        return part(**values)


def _same(asked: Struct, name: str, kind: str) -> Any:
    if kind.startswith("[]") or kind[:1].isupper():
        return None
    for names in (_PARTITION_NAMES, _TOPIC_NAMES, (name,)):
        if name in names:
            for other in names:
                value = getattr(asked, other, None)
                if value is not None and not isinstance(value, list | Struct):
                    return value
    return None


def _first_field(part: type[Struct], value: object) -> str:
    """Where a bare partition number or name goes."""
    wanted = "string" if isinstance(value, str) else "int32"
    return next(row[0] for row in part.FIELDS if row[1] == wanted)
