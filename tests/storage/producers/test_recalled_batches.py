"""Batches that a table found in its log again, after a restart had cut its memory."""

from collections.abc import Callable

import pytest

from moldau.protocol.errors import MoldauError
from moldau.storage.producers.entry import BatchMetadata, DataBatch, ProducerEntry
from moldau.storage.producers.state import AppendOrigin, ProducerStateTable
from moldau.types import Offset, ProducerEpoch

NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
Found = Callable[[list[BatchMetadata]], None]


class SearchNeededError(MoldauError):
    """Stands for the search in the log that the table requests."""

    def __init__(self, entry: ProducerEntry, found: Found) -> None:
        super().__init__("search")
        self.entry = entry
        self.found = found


def metadata(sequence: int) -> BatchMetadata:
    return BatchMetadata(sequence, sequence, Offset(sequence), Offset(sequence), NOW_MS)


def entry(producer_id: int, sequence: int, epoch: int = 0) -> ProducerEntry:
    made = ProducerEntry(producer_id)
    made.add_batch(ProducerEpoch(epoch), metadata(sequence))
    return made


def table_of(*entries: ProducerEntry, ids_max: int = 100) -> ProducerStateTable:
    """As after a start with a snapshot, which has only the last batch of each producer."""
    table = ProducerStateTable(producer_ids_max=ids_max)
    table.search_log = SearchNeededError
    table.load(list(entries), end_offset=Offset(50), now_ms=NOW_MS)
    return table


def search(table: ProducerStateTable, producer_id: int) -> Found:
    known = table.entry(producer_id)
    assert known is not None
    with pytest.raises(SearchNeededError) as needed:
        table.recall(known)
    return needed.value.found


def sequences(table: ProducerStateTable, producer_id: int) -> list[int]:
    known = table.entry(producer_id)
    assert known is not None
    return [batch.first_sequence for batch in known.batches]


def test_batches_before_the_known_one_are_remembered_up_to_a_gap() -> None:
    table = table_of(entry(1, 9))
    search(table, 1)([metadata(sequence) for sequence in (3, 4, 6, 7, 8)])
    assert sequences(table, 1) == [6, 7, 8, 9]


def test_no_more_than_five_batches_are_remembered() -> None:
    table = table_of(entry(1, 9))
    search(table, 1)([metadata(sequence) for sequence in range(9)])
    assert sequences(table, 1) == [5, 6, 7, 8, 9]


def write(table: ProducerStateTable, producer_id: int, sequence: int, epoch: int = 0) -> None:
    append = table.begin_append(AppendOrigin.REPLICATION)
    offset = table.end_offset
    append.add_data(
        DataBatch(producer_id, ProducerEpoch(epoch), sequence, offset, offset, NOW_MS, False)
    )
    table.apply(append)
    table.end_offset = Offset(offset + 1)


def test_what_was_found_for_an_earlier_epoch_is_dropped() -> None:
    table = table_of(entry(1, 9))
    found = search(table, 1)
    write(table, 1, 0, epoch=1)
    found([metadata(sequence) for sequence in range(5, 9)])
    assert sequences(table, 1) == [0]


def test_a_search_is_made_once_for_each_producer_unless_there_are_too_many() -> None:
    table = table_of(ids_max=2)
    # As after a start without a snapshot, with a log that has lost its beginning.
    table.clear(Offset(40))
    for producer_id in (1, 2):
        write(table, producer_id, 4)
        search(table, producer_id)([])
        known = table.entry(producer_id)
        assert known is not None
        assert table.recall(known), "there may be more, but it was searched for"
    # A third id: the list of those that were searched for starts anew.
    write(table, 3, 4)
    search(table, 3)([])
    search(table, 2)([])


def test_the_oldest_transaction_counts_in_whatever_order_a_snapshot_has_them() -> None:
    table = ProducerStateTable()
    late, early = entry(1, 0), entry(2, 0)
    late.transaction_first_offset, early.transaction_first_offset = Offset(30), Offset(10)
    table.load([late, early], end_offset=Offset(50), now_ms=NOW_MS)
    assert table.first_unstable_offset == 10


def test_a_transaction_without_a_time_is_not_called_late() -> None:
    timeless = entry(1, 0)
    timeless.transaction_first_offset = Offset(3)
    timeless.last_timestamp_ms = 0
    table = ProducerStateTable()
    table.load([timeless], end_offset=Offset(50), now_ms=NOW_MS)
    assert not table.has_late_transaction(NOW_MS, transaction_timeout_max_ms=TIMEOUT_MS)
