"""The result of a decide function: the records to write, and the response to send once they are
committed. Deciding changes nothing; replaying the records does.
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
    """Whether all records are committed together or not at all."""
    frees_disk: bool = False
    """Whether the records let disk space be freed: on a full disk they may use the reserve."""
    kraft_version: int | None = None
    """The kraft.version to raise the quorum to, in control records before these records."""
