"""The records that a read_committed reader sees, over the wire."""

from collections.abc import Iterable
from typing import NamedTuple

from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import FETCH_BYTES, FETCH_VERSION, Place

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.records.batches import Record, iterate_batches
from moldau.protocol.records.control_records import committed_batches

_READ_COMMITTED = 1
_LATEST = -1
_FETCHES_MAX = 10_000
_NOT_AT_REST = ["Ongoing", "PrepareCommit", "PrepareAbort"]


class NodeStopsError(ConnectionError):
    """It has released its partitions."""


class CommittedFetch(NamedTuple):
    records: list[Record]
    next_offset: int
    last_stable_offset: int
    high_watermark: int


def fetch_committed(client: WireClient, place: Place, offset: int) -> CommittedFetch:
    topic, index = place
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=_READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    (answer,) = client.ask(request, FETCH_VERSION).responses[0].partitions
    if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        raise NodeStopsError
    assert answer.error_code == 0, (place, offset, answer.error_code)
    assert answer.last_stable_offset <= answer.high_watermark, place
    batches = list(iterate_batches(answer.records or b""))
    for batch in batches:
        assert batch.last_offset < answer.last_stable_offset, f"{place}: beyond what is stable"
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
    records = [
        record
        for batch in committed_batches(batches, aborted)
        for record in batch.records()
        if record.offset >= offset
    ]
    next_offset = batches[-1].next_offset if batches else offset
    return CommittedFetch(records, next_offset, answer.last_stable_offset, answer.high_watermark)


class CommittedReader:
    """Reads a partition further. The stable offset never moves back."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.position = 0
        self.last_stable_offset = 0

    def read_on(self, client: WireClient) -> list[bytes]:
        """The new records up to the current stable offset. If the node disappears meanwhile, all of
        them are new the next time.
        """
        values: list[bytes] = []
        position = self.position
        for _ in range(_FETCHES_MAX):
            fetched = fetch_committed(client, self.place, position)
            stable = fetched.last_stable_offset
            assert stable >= self.last_stable_offset, f"{self.place}: went back to {stable}"
            self.last_stable_offset = stable
            values += [record.value or b"" for record in fetched.records]
            position = fetched.next_offset
            if position >= stable:
                self.position = position
                return values
        raise AssertionError(f"{self.place} does not end")


def read_committed(client: WireClient, place: Place) -> list[bytes]:
    return CommittedReader(place).read_on(client)


def stable_offset(client: WireClient, place: Place) -> int:
    """The offset from ListOffsets."""
    topic, index = place
    wanted = ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=_READ_COMMITTED,
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
    )
    (answer,) = client.ask(request).topics[0].partitions
    assert answer.error_code == 0, (place, answer.error_code)
    return int(answer.offset)


def is_all_stable(client: WireClient, places: Iterable[Place]) -> bool:
    """No transaction is open on any of them."""
    fetches = [fetch_committed(client, place, stable_offset(client, place)) for place in places]
    return all(each.last_stable_offset == each.high_watermark for each in fetches)


def wait_until_stable(client: WireClient, places: Iterable[Place], timeout_s: float = 30) -> None:
    every = list(places)
    wait_for(lambda: is_all_stable(client, every), "the ends of all transactions", timeout_s)


def wait_until_at_rest(client: WireClient, timeout_s: float = 30) -> None:
    """The coordinator may still be busy with a transaction that partitions do not show: one with
    partitions but without records, or one whose markers are written.
    """

    def is_at_rest() -> bool:
        answer = client.ask(ListTransactionsRequest(state_filters=_NOT_AT_REST))
        return answer.error_code == ErrorCode.NONE and not answer.transaction_states

    wait_for(is_at_rest, "all transactions to be at rest", timeout_s)
