"""One record as an object. It is a tuple underneath, so that the loops can create millions."""

from typing import NamedTuple


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
