"""Incremental fetch sessions (KIP-227): a client names its partitions once and then only what
changed; responses leave out partitions without changes. The number of sessions is bounded: a
client that gets none, or loses it, continues with full fetches.

| session id, epoch | meaning |
|---|---|
| any, -1 | no session requested; the named one ends |
| any, 0 | a new session requested; the named one ends |
| id, n | request number n of a session |
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple, TypeAlias

from moldau.net.chance import SYSTEM_CHANCE
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from moldau.protocol.versions import FETCH_TOPIC_IDS
from moldau.types import FINAL_FETCH_EPOCH, FIRST_FETCH_EPOCH, INT32_MAX, NO_FETCH_SESSION, Uuid

EVICTION_MS = 120_000
PARTITIONS_MAX = 100_000
BYTES_MAX = 128 << 20
"""Bound on all sessions together, approximately: names of unknown topics may have 32 KB each."""
PARTITION_BYTES = 600
"""Size without the name of the topic."""
# How long a full cache is assumed to stay full for sessions that are not larger than one that was
# refused: scanning all sessions for every request would cost more than a session.
_STILL_FULL_MS = 1_000

PartitionKey: TypeAlias = tuple[str | Uuid, int]


class RequestedPartition:
    """One partition of a fetch: the request for it, and in a session also the last response."""

    __slots__ = ("high_watermark", "log_start_offset", "request", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: Uuid, request: FetchPartition) -> None:
        self.topic = topic
        """Empty if the partition is requested by topic id."""
        self.topic_id = topic_id
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def answered(self, answer: PartitionData) -> bool:
        """Remembers the response. True if it contains anything new."""
        is_new = (
            bool(answer.records)
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.error_code != 0
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch.epoch >= 0
        )
        # After an error the next successful response is new.
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_new


class FullFetch:
    """All partitions are in the request. A session begins with the response, if there is room."""

    def __init__(
        self,
        sessions: "FetchSessions",
        requested: dict[PartitionKey, RequestedPartition],
        new_session: "SessionProperties | None",
    ) -> None:
        self._sessions = sessions
        self._requested = requested
        self._new_session = new_session
        """None: the client requested no session."""
        self._has_any = False
        self._size_bytes = 0

    omits_unchanged = False

    @property
    def requested(self) -> list[RequestedPartition]:
        return list(self._requested.values())

    def must_send(self, requested: RequestedPartition, answer: PartitionData) -> bool:
        """The response contains every partition. A new session remembers what is sent."""
        if self._new_session is not None:
            requested.answered(answer)
            self._has_any |= not answer.error_code
            # Here, because other tasks run between many partitions.
            self._size_bytes += _size(requested.topic or requested.topic_id)
        return True

    def answered(self, _got_records: list[RequestedPartition]) -> int:
        """The id of the new session, or NO_FETCH_SESSION. A response of errors alone
        starts no session.
        """
        if self._new_session is None or not self._has_any:
            return NO_FETCH_SESSION
        return self._sessions.create(self._requested, self._size_bytes, self._new_session)


class IncrementalFetch:
    def __init__(self, session: "FetchSession") -> None:
        self._session = session
        self._epoch = session.epoch
        # The session may change while this fetch waits, if its client sends another request.
        self.requested = list(session.partitions.values())

    omits_unchanged = True

    def must_send(self, requested: RequestedPartition, answer: PartitionData) -> bool:
        # Nothing is sent, and so nothing remembered, if the session has advanced.
        return self._session.epoch == self._epoch and requested.answered(answer)

    def answered(self, got_records: list[RequestedPartition]) -> int:
        """The session's id."""
        session = self._session
        if session.epoch != self._epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                "another request has advanced the session",
            )
        # Partitions with records move to the end: the next response may be full before them.
        for requested in got_records:
            session.move_to_end(requested)
        return session.session_id


class SessionProperties(NamedTuple):
    """The properties that a session gets when it is created, and keeps."""

    is_privileged: bool
    uses_topic_ids: bool
    created_ms: float


class FetchSession:
    __slots__ = ("epoch", "last_used_ms", "partitions", "properties", "session_id", "size_bytes")

    def __init__(
        self,
        session_id: int,
        properties: SessionProperties,
        partitions: dict[PartitionKey, RequestedPartition],
        size_bytes: int,
    ) -> None:
        self.session_id = session_id
        self.size_bytes = size_bytes
        self.properties = properties
        self.partitions = partitions
        self.last_used_ms = properties.created_ms
        self.epoch = _next_epoch(FIRST_FETCH_EPOCH)

    def move_to_end(self, requested: RequestedPartition) -> None:
        key = _key(requested.topic, requested.topic_id, requested.request.partition)
        if key in self.partitions:
            self.partitions[key] = self.partitions.pop(key)

    def value(self) -> tuple[bool, int, int]:
        """The session with the lowest value is evicted first."""
        return self.properties.is_privileged, len(self.partitions), self.session_id


class FetchSessions:
    """`slots` is max.incremental.fetch.session.cache.slots."""

    def __init__(self, slots: int, chance: Random = SYSTEM_CHANCE) -> None:
        self._slots = slots
        self._chance = chance
        # Ordered by last use, the oldest first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._full_for: tuple[bool, int] = (False, -1)
        self._full_until_ms = 0.0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(
        self,
        request: FetchRequest,
        version: int,
        requested: dict[PartitionKey, RequestedPartition] | None = None,
        *,
        is_follower: bool,
        now_ms: float,
    ) -> FullFetch | IncrementalFetch:
        """`requested`: the partitions of the request, if they are known already. Raises
        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR:
        the client starts over with a full fetch.
        """
        uses_topic_ids = version >= FETCH_TOPIC_IDS
        if request.session_epoch in {FIRST_FETCH_EPOCH, FINAL_FETCH_EPOCH}:
            self._drop(request.session_id)
            new_session = None
            if request.session_epoch == FIRST_FETCH_EPOCH:
                new_session = SessionProperties(is_follower, uses_topic_ids, now_ms)
            return FullFetch(self, requested or requested_in(request), new_session)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.properties.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        bytes_before = session.size_bytes
        _update(
            session, request, requested.items() if requested is not None else _requested(request)
        )
        self.size_bytes += session.size_bytes - bytes_before
        if len(session.partitions) > PARTITIONS_MAX or (
            self.size_bytes > BYTES_MAX and session.size_bytes > bytes_before
        ):
            self._drop(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "too many partitions")
        if not session.partitions:
            self._drop(session.session_id)
            return FullFetch(self, requested or requested_in(request), None)
        session.epoch = _next_epoch(session.epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        return IncrementalFetch(session)

    def create(
        self,
        partitions: dict[PartitionKey, RequestedPartition],
        size_bytes: int,
        properties: SessionProperties,
    ) -> int:
        """The new session's id; NO_FETCH_SESSION if no room can be made for it."""
        if not self._make_room_for_bytes(size_bytes, properties):
            return NO_FETCH_SESSION
        if not self._make_room(properties, len(partitions)):
            return NO_FETCH_SESSION
        session_id = self._chance.randint(1, INT32_MAX)
        while session_id in self._sessions:
            session_id = self._chance.randint(1, INT32_MAX)
        self._sessions[session_id] = FetchSession(session_id, properties, partitions, size_bytes)
        self.size_bytes += size_bytes
        return session_id

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.size_bytes -= session.size_bytes

    def _make_room_for_bytes(self, size_bytes: int, properties: SessionProperties) -> bool:
        """Evicts only idle sessions to make room for the bytes."""
        while self.size_bytes + size_bytes > BYTES_MAX:
            stalest = next(iter(self._sessions.values()), None)
            if stalest is None or properties.created_ms - stalest.last_used_ms <= EVICTION_MS:
                return False
            self._drop(stalest.session_id)
        return True

    def _make_room(self, properties: SessionProperties, size: int) -> bool:
        """A follower may evict a client; any newcomer may evict a session that is idle, or one that
        is smaller and not young.
        """
        now_ms = properties.created_ms
        if len(self._sessions) < self._slots:
            return True
        stalest = next(iter(self._sessions.values()), None)
        if stalest is None:
            return False
        if now_ms - stalest.last_used_ms > EVICTION_MS:
            self._drop(stalest.session_id)
            return True
        worth = (properties.is_privileged, size)
        if now_ms < self._full_until_ms and worth <= self._full_for:
            return False
        victim = min(
            (each for each in self._sessions.values() if _may_go(each, properties)),
            key=FetchSession.value,
            default=None,
        )
        if victim is None or (*worth, 0) < victim.value():
            self._full_for, self._full_until_ms = worth, now_ms + _STILL_FULL_MS
            return False
        self._drop(victim.session_id)
        return True


def _may_go(session: FetchSession, newcomer: SessionProperties) -> bool:
    if newcomer.is_privileged and not session.properties.is_privileged:
        return True
    return newcomer.created_ms - session.properties.created_ms > EVICTION_MS


def _next_epoch(epoch: int) -> int:
    return 1 if epoch == INT32_MAX else epoch + 1


def _size(topic: str | Uuid) -> int:
    """Memory per partition of the topic. A single wide character makes a Python string four times
    as large.
    """
    return PARTITION_BYTES + topic.__sizeof__()


def _key(topic: str, topic_id: Uuid, index: int) -> PartitionKey:
    return topic or topic_id, index


def _requested(request: FetchRequest) -> Iterator[tuple[PartitionKey, RequestedPartition]]:
    """The last entry counts if a partition is named twice."""
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        for partition in topic.partitions:
            yield (
                _key(name, topic_id, partition.partition),
                RequestedPartition(name, topic_id, partition),
            )


def requested_in(request: FetchRequest) -> dict[PartitionKey, RequestedPartition]:
    return dict(_requested(request))


def _update(
    session: FetchSession,
    request: FetchRequest,
    named: Iterable[tuple[PartitionKey, RequestedPartition]],
) -> None:
    partitions = session.partitions
    for key, requested in named:
        known = partitions.get(key)
        if known is None:
            partitions[key] = requested
            session.size_bytes += _size(key[0])
        else:
            known.request = requested.request
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            key = _key(topic.topic, topic.topic_id, index)
            if partitions.pop(key, None) is not None:
                session.size_bytes -= _size(key[0])
