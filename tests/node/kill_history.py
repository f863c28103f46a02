"""What producers and consumers of the kill tests were promised, and whether it holds. Records say
who sent them and as which of that producer's records for the partition, counted from 0: in a log
that keeps everything each producer's numbers must be 0, 1, 2, … without a gap or a repetition.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable

from node.questions import (
    EARLIEST,
    LATEST,
    Place,
    committed,
    fetch,
    offset_at,
    offsets_at,
    read,
)
from running_node import wait_for
from wire_client import WireClient

from moldau.protocol.batches import Record
from moldau.protocol.error_codes import ErrorCode

_LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def value_of(producer: str, number: int) -> bytes:
    return f"{producer} {number}".encode()


def parse_value(value: bytes | None) -> tuple[str, int]:
    assert value is not None
    producer, number = value.decode().split(" ")
    return producer, int(number)


class History:
    """Filled by the load's threads, looked at by the test."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acked: dict[Place, dict[int, bytes]] = defaultdict(dict)
        """By offset."""
        self.unplaced: set[Place] = set()
        """Where some were acknowledged without an offset."""
        self.acked_count = 0
        self.committed: dict[Place, int] = {}
        """What members were told that is committed."""
        self.problems: list[str] = []

    def record_acked(self, place: Place, offset: int, value: bytes) -> None:
        with self.lock:
            if offset < 0:
                # It was there already, and the broker does not know where any more.
                self.unplaced.add(place)
                return
            other = self.acked[place].setdefault(offset, value)
            if other != value:
                self.problems.append(f"{place} {offset} was given to {other!r} and {value!r}")
            self.acked_count += 1

    def record_committed(self, place: Place, offset: int) -> None:
        with self.lock:
            self.committed[place] = max(offset, self.committed.get(place, 0))

    def committed_at(self, place: Place) -> int:
        with self.lock:
            return self.committed.get(place, 0)

    def record_problem(self, problem: str) -> None:
        with self.lock:
            self.problems.append(problem)

    def acked_at(self, place: Place) -> dict[int, bytes]:
        with self.lock:
            return dict(self.acked[place])


class KeptLog:
    """Reads on where it ended the last time."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.next_offset = 0
        self.next_numbers: dict[str, int] = defaultdict(int)

    def check(self, client: WireClient, history: History, end: int) -> None:
        acked = history.acked_at(self.place)
        for record in read(client, self.place, self.next_offset, end):
            at = f"{self.place} {record.offset}"
            assert record.offset == self.next_offset, f"{at}: a gap after {self.next_offset}"
            producer, number = parse_value(record.value)
            expected = self.next_numbers[producer]
            assert number == expected, f"{at}: {record.value!r} where number {expected} belongs"
            self.next_numbers[producer] = number + 1
            self.next_offset += 1
            assert acked.get(record.offset, record.value) == record.value, f"{at} has changed"
        missing = {o: v for o, v in acked.items() if o >= self.next_offset and o < end}
        assert not missing, f"{self.place}: lost {missing}"


def check_trimmed(client: WireClient, place: Place, end: int, history: History) -> None:
    """Everything that retention has left."""
    acked = history.acked_at(place)
    numbers: dict[str, int] = {}
    records = _read_what_is_left(client, place, end)
    start = records[0].offset if records else end
    for expected_offset, record in enumerate(records, start):
        assert record.offset == expected_offset, f"{place}: {record.offset} at {expected_offset}"
        producer, number = parse_value(record.value)
        if producer in numbers:
            assert number == numbers[producer] + 1, f"{place} {record.offset}: {record.value!r}"
        numbers[producer] = number
        assert acked.get(record.offset, record.value) == record.value, f"{place} {record.offset}"


def _read_what_is_left(client: WireClient, place: Place, end: int) -> list[Record]:
    """Segments may be deleted while they are read: then from the new start on."""
    records: list[Record] = []
    offset = offset_at(client, place, EARLIEST)
    while offset < end:
        fetched = fetch(client, place, offset)
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            records = []
            start = offset_at(client, place, EARLIEST)
            assert start > offset, f"{place}: {offset} is refused, it starts at {start}"
            offset = start
            continue
        assert fetched.error_code == 0, (place, offset, fetched.error_code)
        assert fetched.next_offset > offset, (place, offset, end, fetched.high_watermark)
        records += [record for record in fetched.records if record.offset < end]
        offset = fetched.next_offset
    return records


def check_compacted(records: list[Record], place: Place, end: int, history: History) -> None:
    """Each key's last value, and no value that was not sent there."""
    acked = history.acked_at(place)
    newest: dict[bytes | None, tuple[int, int]] = {}
    before = -1
    for record in records:
        assert record.offset > before, f"{place}: {record.offset} after {before}"
        before = record.offset
        number = parse_value(record.value)[1]
        known = newest.get(record.key, (-1, -1))
        assert number > known[1], f"{place} {record.offset}: {record.value!r} after {known}"
        newest[record.key] = (record.offset, number)
        assert acked.get(record.offset, record.value) == record.value, f"{place} {record.offset}"
    # A producer has one key in each partition, which is its name.
    for offset, value in acked.items():
        producer, number = parse_value(value)
        if offset < end:
            found = newest.get(producer.encode(), (-1, -1))
            assert found >= (offset, number), f"{place}: {value!r} at {offset} is lost: {found}"


class Watermarks:
    """Starts and ends of logs never go back."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = list(places)
        self.starts: dict[Place, int] = dict.fromkeys(self.places, 0)
        self.ends: dict[Place, int] = dict.fromkeys(self.places, 0)

    def look(self, client: WireClient) -> None:
        ends = offsets_at(client, self.places, LATEST)
        starts = offsets_at(client, self.places, EARLIEST)
        for place in self.places:
            assert starts[place] >= self.starts[place], f"{place}: its start went back"
            assert ends[place] >= self.ends[place], f"{place}: its end went back"
            assert starts[place] <= offsets_at(client, [place], LATEST)[place]
        self.starts, self.ends = starts, ends


def check_committed(client: WireClient, group: str, history: History) -> None:
    with history.lock:
        promised = dict(history.committed)
    answers: list[dict[Place, int]] = []

    def is_loaded() -> bool:
        error_code, offsets = committed(client, group)
        assert error_code == 0 or error_code in _LOADING, error_code
        answers.append(offsets)
        return error_code == 0

    wait_for(is_loaded, "the group's offsets")
    for place, offset in promised.items():
        found = answers[-1].get(place, -1)
        assert found >= offset, f"{group} {place}: {offset} was committed, {found} is there"
