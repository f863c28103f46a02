"""Records and snapshots of the metadata log, fetched from a live Apache Kafka and from ours."""

import itertools
from collections.abc import Iterator
from functools import partial

import pytest
from interop.apache import ApacheOracle
from interop.node_pair import Asker, Pairs, running_pairs
from interop.quorum_talk import (
    FENCED,
    FETCH_VERSIONS,
    NONE,
    SETTINGS,
    UNKNOWN_EPOCH,
    Request,
    answered,
    fetch_of,
    position,
    quorum_of,
    snapshot_of,
)
from support.waiting import wait_for

from moldau.core.quorum import rpc
from moldau.core.quorum.positions import LogPosition
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.create_topics import CreatableTopic
from moldau.protocol.records.batches import iterate_batches
from moldau.types import (
    LeaderEpoch,
)

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def pairs(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    with running_pairs(apache, tmp_path_factory.mktemp("pair"), SETTINGS) as pairs:
        yield pairs


def offered_snapshot(side: Asker) -> LogPosition | None:
    response = answered(side, fetch_of()(quorum_of(side)))
    assert isinstance(response, rpc.FetchResponse)
    return response.snapshot


def has_snapshot(side: Asker) -> bool:
    return offered_snapshot(side) is not None


def fetched_log(side: Asker, start: LogPosition, max_bytes: int, version: int) -> bytes:
    """All committed records from a position on."""
    quorum = quorum_of(side)
    content, at = b"", start
    while at.offset < quorum.high_watermark:
        request = fetch_of(position=at, max_bytes=max_bytes)(quorum)
        response = answered(side, request, version)
        assert isinstance(response, rpc.FetchResponse)
        assert (response.error, response.diverging, response.snapshot) == (NONE, None, None)
        assert response.records
        last = list(iterate_batches(response.records))[-1]
        at = position(last.partition_leader_epoch, last.last_offset + 1)
        content += response.records
    return content


def test_records_and_snapshots_are_fetched_from_both(pairs: Pairs) -> None:
    """Also in pieces that are smaller than a batch."""
    for number in range(8):
        topic = CreatableTopic(name=f"made-{number}", num_partitions=3, replication_factor=1)
        pairs.brokers.create(topic)
    for side in pairs.controllers:
        wait_for(partial(has_snapshot, side), "a snapshot")
        wanted = offered_snapshot(side)
        assert wanted is not None
        whole, pieces = (fetched_snapshot(side, wanted, size) for size in (1_000_000, 100))
        assert whole == pieces
        first = next(iter(iterate_batches(whole)))
        assert (first.is_control, first.base_offset) == (True, 0)
        for version in FETCH_VERSIONS:
            at_once = fetched_log(side, wanted, 1_000_000, version)
            assert fetched_log(side, wanted, 1, version).startswith(at_once)


def fetched_snapshot(side: Asker, wanted: LogPosition, max_bytes: int) -> bytes:
    content = b""
    quorum = quorum_of(side)
    for version in itertools.cycle((0, 1)):
        request = snapshot_of(snapshot=wanted, position=len(content), max_bytes=max_bytes)(quorum)
        response = answered(side, request, version)
        assert isinstance(response, rpc.FetchSnapshotResponse)
        assert (response.error, response.snapshot) == (NONE, wanted)
        assert response.position == len(content)
        assert 0 < len(response.content) <= max_bytes
        assert bool(response.leadership.endpoints) == bool(version)
        content += response.content
        if len(content) == response.size:
            break
    return content


REFUSED_SNAPSHOTS: dict[str, tuple[Request, ErrorCode]] = {
    "old epoch": (snapshot_of(epoch=LeaderEpoch(0)), FENCED),
    "later epoch": (snapshot_of(more=1), UNKNOWN_EPOCH),
    "that of formatting": (snapshot_of(), ErrorCode.SNAPSHOT_NOT_FOUND),
    "none": (snapshot_of(snapshot=position(0, 99)), ErrorCode.SNAPSHOT_NOT_FOUND),
}


@pytest.mark.parametrize("name", REFUSED_SNAPSHOTS)
def test_snapshots_are_refused_with_a_reason(pairs: Pairs, name: str) -> None:
    """Apache 4.3.1 cannot encode its refusals: they have no records, not even none."""
    request, expected = REFUSED_SNAPSHOTS[name]
    theirs, ours = pairs.controllers
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        answered(theirs, request(quorum_of(theirs)))
    response = answered(ours, request(quorum_of(ours)))
    assert isinstance(response, rpc.FetchSnapshotResponse)
    assert response.error is expected
    assert response.leadership.leader_id == 1


def test_a_waiting_fetch_is_answered_alike(pairs: Pairs) -> None:
    """With the next NoOp, long before its time is up, and a NoOp is one record."""
    for side in pairs.controllers:
        quorum = quorum_of(side)
        at = position(quorum.epoch, quorum.end_offset)
        request = fetch_of(position=at, max_wait_ms=20_000, high_watermark=2**62)(quorum)
        response = answered(side, request)
        assert isinstance(response, rpc.FetchResponse)
        assert response.error is NONE
        first = next(iter(iterate_batches(response.records)))
        assert (first.base_offset, first.is_control) == (at.offset, False)
