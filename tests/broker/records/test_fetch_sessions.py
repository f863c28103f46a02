"""The bounds on what clients can make a node remember by fetch sessions."""

import pytest

from moldau.broker.records import fetch_sessions
from moldau.broker.records.fetch_sessions import (
    EVICTION_MS,
    PARTITION_BYTES,
    FetchSessions,
    FullFetch,
)
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from moldau.types import NO_FETCH_SESSION

BY_NAME = 12
SLOTS = 100
NAME_CHARS = 30_000


def request(*names: str, session_id: int = 0, epoch: int = 0) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=name, partitions=[FetchPartition()]) for name in names],
    )


def begin(
    sessions: FetchSessions, sent: FetchRequest, *, error_code: int = 0, now_ms: float = 0.0
) -> int:
    """A new session's id."""
    fetch = sessions.begin(sent, BY_NAME, is_follower=False, now_ms=now_ms)
    assert isinstance(fetch, FullFetch)
    for each in fetch.requested:
        fetch.must_send(each, PartitionData(error_code=error_code))
    return fetch.answered([])


def long_name(number: int) -> str:
    return f"{number:x}".rjust(NAME_CHARS, "x")


@pytest.fixture
def bytes_max(monkeypatch: pytest.MonkeyPatch) -> int:
    """Room for three sessions with a long name, and a little more."""
    monkeypatch.setattr(fetch_sessions, "BYTES_MAX", 100_000)
    return 100_000


def test_no_session_begins_for_refused_partitions_only() -> None:
    sessions = FetchSessions(SLOTS)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert begin(sessions, request("a", "b"), error_code=unknown) == NO_FETCH_SESSION
    assert not len(sessions)
    assert sessions.size_bytes == 0


def test_all_sessions_together_have_so_many_bytes(bytes_max: int) -> None:
    sessions = FetchSessions(SLOTS)
    ids = [begin(sessions, request(long_name(number))) for number in range(5)]
    assert [each > 0 for each in ids] == [True, True, True, False, False]
    assert 3 * NAME_CHARS < sessions.size_bytes <= bytes_max
    assert begin(sessions, request("short")) > 0


def test_wide_characters_count_with_their_size_in_memory(bytes_max: int) -> None:
    sessions = FetchSessions(SLOTS)
    wide = "\N{PARTY POPPER}" + "x" * NAME_CHARS
    assert bytes_max < 4 * NAME_CHARS
    assert begin(sessions, request(wide)) == NO_FETCH_SESSION


def test_a_session_that_grows_beyond_the_bytes_ends(bytes_max: int) -> None:
    sessions = FetchSessions(SLOTS)
    other = begin(sessions, request("other"))
    session_id = begin(sessions, request("small"))
    names = [long_name(number) for number in range(4)]
    with pytest.raises(KafkaError) as raised:
        sessions.begin(
            request(*names, session_id=session_id, epoch=1), BY_NAME, is_follower=False, now_ms=0.0
        )
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 1
    assert PARTITION_BYTES < sessions.size_bytes < 2 * PARTITION_BYTES < bytes_max
    sessions.begin(request(session_id=other, epoch=1), BY_NAME, is_follower=False, now_ms=0.0)


@pytest.mark.usefixtures("bytes_max")
def test_sessions_that_are_not_used_make_room_for_bytes() -> None:
    sessions = FetchSessions(SLOTS)
    old = [begin(sessions, request(long_name(number))) for number in range(3)]
    later_ms = EVICTION_MS + 1.0
    sessions.begin(request(session_id=old[0], epoch=1), BY_NAME, is_follower=False, now_ms=later_ms)
    assert begin(sessions, request(long_name(3)), now_ms=later_ms) > 0
    sessions.begin(request(session_id=old[0], epoch=2), BY_NAME, is_follower=False, now_ms=later_ms)
    with pytest.raises(KafkaError):
        sessions.begin(
            request(session_id=old[1], epoch=1), BY_NAME, is_follower=False, now_ms=later_ms
        )


def test_forgotten_partitions_are_no_longer_counted() -> None:
    sessions = FetchSessions(SLOTS)
    session_id = begin(sessions, request("a"))
    before = sessions.size_bytes
    names = [long_name(number) for number in range(3)]
    more = request(*names, session_id=session_id, epoch=1)
    sessions.begin(more, BY_NAME, is_follower=False, now_ms=0.0)
    assert sessions.size_bytes > before + 3 * NAME_CHARS
    less = request(session_id=session_id, epoch=2)
    less.forgotten_topics_data = [ForgottenTopic(topic=name, partitions=[0]) for name in names]
    sessions.begin(less, BY_NAME, is_follower=False, now_ms=0.0)
    assert sessions.size_bytes == before
    assert begin(sessions, request(session_id=session_id, epoch=-1)) == NO_FETCH_SESSION
    assert sessions.size_bytes == 0
