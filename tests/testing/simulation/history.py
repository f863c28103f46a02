"""The promises that clients of a simulation were given, and what they read."""

from dataclasses import dataclass, field
from typing import cast

from testing.simulation.talking import PATIENCE_MS, Client

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.control_records import committed_batches

Place = tuple[str, int]
FETCH_VERSION = 12
OFFSETS_VERSION = 9
PARTITIONS = 2
PLACES: list[Place] = [(topic, index) for topic in ("plain", "both") for index in range(PARTITIONS)]
_BYTES = 1 << 20


class BrokenPromiseError(AssertionError):
    """The node has answered something that is not so."""


@dataclass
class Transaction:
    """`commits`: None while the outcome is not known."""

    number: int
    values: dict[bytes, Place] = field(default_factory=dict)
    commits: bool | None = None
    offset: int | None = None
    """Committed to a group in the transaction."""


@dataclass
class History:
    sent: dict[bytes, Place] = field(default_factory=dict)
    acknowledged: dict[Place, dict[int, bytes]] = field(
        default_factory=lambda: {place: {} for place in PLACES}
    )
    transactions: list[Transaction] = field(default_factory=list)
    producer_ids: dict[int, None] = field(default_factory=dict)
    committed_offset: int = -1
    """The highest acknowledged commit of the group."""
    attempted_offset: int = -1
    reads: int = 0

    def sending(self, place: Place, values: list[bytes]) -> None:
        for value in values:
            self.sent[value] = place

    def was_acknowledged(self, place: Place, base_offset: int, values: list[bytes]) -> None:
        known = self.acknowledged[place]
        for offset, value in enumerate(values, base_offset):
            expect(known.get(offset, value) == value, f"{place}: offset {offset} given twice")
            known[offset] = value

    def got_producer_id(self, producer_id: int) -> None:
        expect(producer_id not in self.producer_ids, f"producer id {producer_id} given twice")
        self.producer_ids[producer_id] = None

    def check_all(self, place: Place, expected: dict[int, bytes], found: dict[int, bytes]) -> None:
        """Everything that is in the log, whether committed or not. `expected`: what was
        acknowledged when the reader began.
        """
        self.reads += 1
        for offset, value in expected.items():
            got = found.get(offset)
            expect(got == value, f"{place}: {value!r} at {offset} was acknowledged, found {got!r}")
        expect(len(set(found.values())) == len(found), f"{place}: a record is there twice")
        for offset, value in found.items():
            expect(self.sent.get(value) == place, f"{place}: {value!r} at {offset} was not sent")

    def check_committed(self, place: Place, found: list[bytes], *, is_end: bool) -> None:
        """The values that a read_committed reader sees."""
        here = set(found)
        expect(len(here) == len(found), f"{place}: a committed record is there twice")
        for transaction in self.transactions:
            values = [value for value, at in transaction.values.items() if at == place]
            seen = [value for value in values if value in here]
            if transaction.commits is False:
                expect(not seen, f"{place}: {seen} of an aborted transaction")
            if transaction.commits and is_end:
                # Before the end, an open transaction before it may hide them.
                lost = [value for value in values if value not in here]
                expect(not lost, f"{place}: {lost} of a committed transaction")

    def check_atomic(self, found: dict[Place, list[bytes]]) -> None:
        """At the end: all of a transaction, or nothing."""
        for transaction in self.transactions:
            seen = {value in found[place] for value, place in transaction.values.items()}
            expect(len(seen) <= 1, f"transaction {transaction.number} is there in part")

    def check_transaction_offset(self, offset: int) -> None:
        """At the end: what the last committed transaction has committed to its group."""
        last = -1
        possible = {-1}
        for transaction in self.transactions:
            if transaction.offset is None or transaction.commits is False:
                continue
            if transaction.commits:
                possible = set()
            last = transaction.offset
            possible.add(last)
        expect(offset in possible, f"the offset of transactions is {offset}, not one of {possible}")

    def check_group_offset(self, offset: int) -> None:
        expect(
            self.committed_offset <= offset <= self.attempted_offset,
            f"{offset} is committed; {self.committed_offset} was acknowledged, and "
            f"{self.attempted_offset} the last attempt",
        )


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenPromiseError(otherwise)


async def fetch(client: Client, place: Place, offset: int, *, committed: bool) -> PartitionData:
    topic, index = place
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_BYTES,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    answer = await client.persist(request, FETCH_VERSION, _fetch_code)
    part: PartitionData = answer.responses[0].partitions[0]
    return part


async def wait_until_stable(client: Client, place: Place) -> None:
    """A decided transaction is answered before its markers are written."""
    deadline_ms = client.clock.mono_ms() + PATIENCE_MS
    while True:
        part = await fetch(client, place, 0, committed=True)
        if part.last_stable_offset == part.high_watermark:
            return
        expect(client.clock.mono_ms() < deadline_ms, f"{place}: a transaction does not end")
        await client.clock.sleep(100)


async def read(client: Client, place: Place, *, committed: bool) -> dict[int, bytes]:
    """All records of a partition: offset -> value."""
    found: dict[int, bytes] = {}
    position = 0
    while True:
        part = await fetch(client, place, position, committed=committed)
        aborted = [
            (each.producer_id, each.first_offset) for each in part.aborted_transactions or ()
        ]
        batches = list(iterate_batches(cast("bytes", part.records or b"")))
        if not batches:
            return found
        for batch in batches:
            expect(batch.base_offset >= position, f"{place}: {batch.base_offset} after {position}")
            position = batch.next_offset
        shown = committed_batches(batches, aborted) if committed else batches
        for batch in shown:
            if not batch.is_control:
                found |= {record.offset: bytes(record.value or b"") for record in batch.records()}


async def committed_offset(client: Client, group: str, place: Place) -> int:
    topic, index = place
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[index])],
            )
        ],
        require_stable=True,
    )
    answer = await client.persist(request, OFFSETS_VERSION, _offset_code)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def _fetch_code(answer: object) -> int:
    code: int = answer.error_code or answer.responses[0].partitions[0].error_code  # type: ignore[attr-defined]
    return code


def _offset_code(answer: object) -> int:
    group = answer.groups[0]  # type: ignore[attr-defined]
    code: int = group.error_code or group.topics[0].partitions[0].error_code
    return code or ErrorCode.NONE
