"""Large requests with independent elements: they are served piece by piece, with other work in
between, and answered as one.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from moldau.net.slices import others_first
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.wire.schema import Message, Struct

PIECE_ELEMENTS = 400
"""A few milliseconds for a handler."""


class Shape(NamedTuple):
    """The fields that hold the elements of a request, and those of its response."""

    requested: str
    requested_inner: str | None
    answered: str
    answered_inner: str | None


_PARTITIONS = Shape("topics", "partitions", "topics", "partitions")
SHAPES: dict[ApiKey, Shape] = {
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.TXN_OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.LEAVE_GROUP: Shape("members", None, "members", None),
    ApiKey.CREATE_ACLS: Shape("creations", None, "results", None),
    ApiKey.DELETE_ACLS: Shape("filters", None, "filter_results", None),
    ApiKey.ADD_PARTITIONS_TO_TXN: Shape("transactions", None, "results_by_transaction", None),
}


async def serve_in_pieces(
    serve: Callable[[Message], Any], request: Message, shape: Shape
) -> Message:
    """An error of the whole request ends it. Earlier pieces stay done."""
    joined = _Joined(shape)
    for piece in _pieces(request, shape):
        outcome = serve(piece)
        answer = outcome if isinstance(outcome, Message) else await outcome
        if getattr(answer, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
            assert isinstance(answer, Message)
            return answer
        joined.add(answer)
        await others_first()
    return joined.answer()


def _pieces(request: Message, shape: Shape) -> Iterator[Message]:
    elements: list[Any] = []
    room = PIECE_ELEMENTS
    for element in _parts(getattr(request, shape.requested), shape.requested_inner):
        elements.append(element)
        room -= 1 + (len(getattr(element, shape.requested_inner)) if shape.requested_inner else 0)
        if room <= 0:
            yield _with(request, shape.requested, elements)
            elements, room = [], PIECE_ELEMENTS
    # Also for an empty list: the rest of the request may have an error to report.
    yield _with(request, shape.requested, elements)


def _parts(elements: list[Any], inner: str | None) -> Iterator[Any]:
    """Each part is at most as long as a piece."""
    for element in elements:
        held: list[Any] = getattr(element, inner) if inner is not None else []
        if inner is None or len(held) <= PIECE_ELEMENTS:
            yield element
            continue
        for start in range(0, len(held), PIECE_ELEMENTS):
            yield _with(element, inner, held[start : start + PIECE_ELEMENTS])


def _with(struct: Any, name: str, value: list[Any]) -> Any:
    changed = copy.copy(struct)
    setattr(changed, name, value)
    return changed


class _Joined:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._first: Message | None = None
        self._elements: list[Any] = []
        self._by_name: dict[tuple[Any, ...], Any] = {}

    def add(self, answer: Message) -> None:
        self._first = self._first or answer
        inner = self._shape.answered_inner
        for element in getattr(answer, self._shape.answered):
            if inner is not None:
                known = self._by_name.setdefault(_name_of(element), element)
                if known is not element:
                    getattr(known, inner).extend(getattr(element, inner))
                    continue
            self._elements.append(element)

    def answer(self) -> Message:
        assert self._first is not None
        setattr(self._first, self._shape.answered, self._elements)
        return self._first


def _name_of(element: Struct) -> tuple[Any, ...]:
    return tuple(getattr(element, name, None) for name in ("name", "topic", "topic_id"))
