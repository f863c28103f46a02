"""Fetch sessions (KIP-227): a broker remembers a client's partitions, and requests carry only
changes.

full (epoch 0) -> incremental (1, 2, …) -> any error -> full
"""

from collections.abc import Mapping
from typing import NamedTuple

from moldau.types import FIRST_FETCH_EPOCH, INT32_MAX, NO_FETCH_SESSION, TopicPartition, Uuid


class FetchRow(NamedTuple):
    """The fetch parameters of one partition."""

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
        return self.epoch == FIRST_FETCH_EPOCH


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self._id = NO_FETCH_SESSION
        self._epoch = FIRST_FETCH_EPOCH
        self._known: dict[TopicPartition, FetchRow] = {}

    def plan(self, requested: Mapping[TopicPartition, FetchRow]) -> SessionPlan:
        before, self._known = self._known, dict(requested)
        if self._epoch == FIRST_FETCH_EPOCH:
            return SessionPlan(self._id, self._epoch, dict(requested), {})
        changed = {each: row for each, row in requested.items() if before.get(each) != row}
        forgotten = {
            each: row.topic_id
            for each, row in before.items()
            if each not in requested or requested[each].topic_id != row.topic_id
        }
        return SessionPlan(self._id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """A broker without room for a session returns none; then every request is a full one."""
        self._id = session_id
        if session_id == NO_FETCH_SESSION:
            self._epoch = FIRST_FETCH_EPOCH
        else:
            self._epoch = 1 if self._epoch == INT32_MAX else self._epoch + 1

    def reset(self, *, is_gone: bool = False) -> None:
        """Starts over after an error. The broker drops the old session unless it is gone."""
        self._epoch = FIRST_FETCH_EPOCH
        self._known = {}
        if is_gone:
            self._id = NO_FETCH_SESSION
