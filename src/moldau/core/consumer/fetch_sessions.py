"""Fetch sessions (KIP-227): a broker remembers what a client reads, and is told only what changed.

full (epoch 0) -> incremental (1, 2, …) -> any trouble -> full again
"""

from collections.abc import Mapping
from typing import NamedTuple

from moldau.types import INT32_MAX, TopicPartition, Uuid

NO_SESSION = 0
_FIRST_EPOCH = 0


class FetchRow(NamedTuple):
    """What a broker is asked for one partition."""

    topic_id: Uuid
    fetch_offset: int
    leader_epoch: int
    fetch_epoch: int
    max_bytes: int


class SessionPlan(NamedTuple):
    session_id: int
    epoch: int
    rows: dict[TopicPartition, FetchRow]
    forgotten: dict[TopicPartition, Uuid]

    @property
    def is_full(self) -> bool:
        return self.epoch == _FIRST_EPOCH


class FetchSession:
    """With one broker."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._known: dict[TopicPartition, FetchRow] = {}

    def plan(self, wanted: Mapping[TopicPartition, FetchRow]) -> SessionPlan:
        before, self._known = self._known, dict(wanted)
        if self._epoch == _FIRST_EPOCH:
            return SessionPlan(self._id, self._epoch, dict(wanted), {})
        changed = {one: row for one, row in wanted.items() if before.get(one) != row}
        forgotten = {
            one: row.topic_id
            for one, row in before.items()
            if one not in wanted or wanted[one].topic_id != row.topic_id
        }
        return SessionPlan(self._id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """A broker without room for a session gives none; then every request is a full one."""
        self._id = session_id
        if session_id == NO_SESSION:
            self._epoch = _FIRST_EPOCH
        else:
            self._epoch = 1 if self._epoch == INT32_MAX else self._epoch + 1

    def reset(self, *, is_gone: bool = False) -> None:
        """After an error: begin again, and let the broker drop the old one unless it is gone."""
        self._epoch = _FIRST_EPOCH
        self._known = {}
        if is_gone:
            self._id = NO_SESSION
