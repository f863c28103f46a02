"""The promises that producers and consumers of the kill tests received, and whether they hold.
Records carry their sender and their number among that producer's records for the partition,
counted from 0: in a log that keeps everything each producer's numbers must be 0, 1, 2, … without
a gap or a repetition.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable

from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import (
    EARLIEST,
    LATEST,
    Place,
    committed,
    fetch,
    offset_at,
    offsets_at,
    read,
)

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.records.batches import Record

_LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


_READS_ON_MAX = 50


def value_of(producer: str, number: int) -> bytes:
    return f"{producer} {number}".encode()


def parse_value(value: bytes | None) -> tuple[str, int]:
    assert value is not None
    producer, number = value.decode().split(" ")
    return producer, int(number)


class History:
    """The load's threads fill it, the test reads it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acked: dict[Place, dict[int, bytes]] = defaultdict(dict)
        """By offset."""
        self.unplaced: set[Place] = set()
        """Partitions where records were acknowledged without an offset."""
        self.acked_count = 0
        self.committed: dict[Place, int] = {}
        """The committed offsets that members saw acknowledged."""
        self.problems: list[str] = []

    def record_acked(self, place: Place, offset: int, value: bytes) -> None:
        with self.lock:
            self.acked_count += 1
            if offset < parse_value(value)[1]:
                # It was there already, and the broker no longer knows where. librdkafka counts on
                # from the -1 that it receives for a batch, so later records of one seem to be at
                # offsets that are smaller than their own number.
                self.unplaced.add(place)
                return
            other = self.acked[place].setdefault(offset, value)
            if other != value:
                self.problems.append(f"{place} {offset} was given to {other!r} and {value!r}")

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
    """Continues reading where it ended the last time."""

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


class CompactedLog:
    """The final contents of a compacted log for a reader that reads long enough: each key's last
    value. A producer has one key, which is its name.
    """

    def __init__(self, place: Place, history: History) -> None:
        self._place = place
        self._acked = history.acked_at(place)
        self._before = -1
        self._newest: dict[str, tuple[int, int]] = {}

    def check(self, client: WireClient, start: int, end: int) -> None:
        lost: list[tuple[int, bytes]] = []
        for _ in range(_READS_ON_MAX):
            for record in read(client, self._place, start, end):
                self._look_at(record)
            lost = self._lost(end)
            if not lost:
                return
            # A newer value after the end may have replaced it meanwhile.
            start, end = end, offset_at(client, self._place, LATEST)
        raise AssertionError(f"{self._place}: lost {lost[:3]}")

    def _look_at(self, record: Record) -> None:
        at = f"{self._place} {record.offset}"
        assert record.offset > self._before, f"{at} after {self._before}"
        self._before = record.offset
        producer, number = parse_value(record.value)
        assert record.key == producer.encode(), at
        known = self._newest.get(producer, (-1, -1))
        assert number > known[1], f"{at}: {record.value!r} after {known}"
        self._newest[producer] = (record.offset, number)
        assert self._acked.get(record.offset, record.value) == record.value, f"{at} has changed"

    def _lost(self, end: int) -> list[tuple[int, bytes]]:
        lost = []
        for offset, value in self._acked.items():
            producer, number = parse_value(value)
            if offset < end and self._newest.get(producer, (-1, -1)) < (offset, number):
                lost.append((offset, value))
        return lost


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
