"""What a decide function gives back: the records that make it true, and the answer to send once
they are committed. Deciding changes nothing; replaying the records does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

ResponseT = TypeVar("ResponseT")
RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True)
class Decision(Generic[RecordT, ResponseT]):
    response: ResponseT
    records: Sequence[RecordT] = ()
    is_atomic: bool = True
    """All of the records are committed, or none."""
