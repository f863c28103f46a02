"""What a decide function gives back: the records that make it true, and the answer to send once
they are committed. Deciding changes nothing; replaying the records does.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from moldau.frozen import frozen

ResponseT = TypeVar("ResponseT")
RecordT = TypeVar("RecordT")


@frozen
class Decision(Generic[RecordT, ResponseT]):
    response: ResponseT
    records: Sequence[RecordT] = ()
    is_atomic: bool = True
    """All of the records are committed, or none."""
    kraft_version: int | None = None
    """The level that the quorum is raised to, in records of its own in front of these."""
