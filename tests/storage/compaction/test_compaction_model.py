"""Generated histories: for any order of writes, rolls and passes, a reader of the whole topic gets
the same table as without compaction.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from storage.compaction_logs import NAME, CompactedLog, Pair, Seen, compacting

from moldau.config.cleaner import CleanerConfig
from moldau.protocol.records.compression import Compression

PLAIN, TRANSACTIONAL = 1, (2, 3)
DELETE_RETENTION_MS = 1000

keys = st.sampled_from([b"a", b"b", b"c", b"d" * 40, b""])
values = st.one_of(st.none(), st.binary(max_size=30))
records = st.lists(st.tuples(keys, values), min_size=1, max_size=6)
codecs = st.sampled_from(list(Compression))
steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from([-1, PLAIN]), records, codecs),
    st.tuples(st.just("put"), st.sampled_from(TRANSACTIONAL), records, codecs),
    st.tuples(st.just("end"), st.sampled_from(TRANSACTIONAL), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([0, 1, 600, 1500])),
)


@dataclass
class Model:
    """Every record ever written, and which of them are committed."""

    written: dict[int, Seen] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    open: dict[int, list[int]] = field(default_factory=dict)

    def committed(self, stable_offset: int) -> list[Seen]:
        return [
            seen
            for offset, seen in sorted(self.written.items())
            if offset < stable_offset and offset not in self.aborted
        ]

    def values(self, stable_offset: int) -> dict[bytes, bytes]:
        table: dict[bytes, bytes] = {}
        for seen in self.committed(stable_offset):
            assert seen.key is not None
            if seen.value is None:
                table.pop(seen.key, None)
            else:
                table[seen.key] = seen.value
        return table


def put(
    log: CompactedLog, model: Model, producer_id: int, pairs: list[Pair], codec: Compression
) -> None:
    log.now_ms += 1
    stamps = [log.now_ms - number for number in range(len(pairs))]
    transactional = producer_id in TRANSACTIONAL
    first = log.put(
        *pairs,
        producer_id=producer_id,
        transactional=transactional,
        compression=codec,
        timestamps=stamps,
    )
    for number, ((key, value), stamp) in enumerate(zip(pairs, stamps, strict=True)):
        model.written[first + number] = Seen(first + number, key, value, stamp)
        if transactional:
            model.open.setdefault(producer_id, []).append(first + number)


def end(log: CompactedLog, model: Model, producer_id: int, *, commit: bool) -> None:
    log.end(producer_id, commit=commit)
    offsets = model.open.pop(producer_id, [])
    if not commit:
        model.aborted.update(offsets)


def check(log: CompactedLog, model: Model) -> None:
    stable = log.log.last_stable_offset
    expected = model.values(stable)
    assert log.values() == expected
    seen = log.records()
    # No record is invented, changed or moved to another offset.
    assert all(model.written[record.offset] == record for record in seen)
    assert [record.offset for record in seen] == sorted({record.offset for record in seen})
    # The last value of each key keeps its offset.
    last = {record.key: record for record in model.committed(stable)}
    there = {record.offset for record in log.committed()}
    assert all(r.offset in there for r in last.values() if r.value is not None)
    # After the cleaned range nothing is missing.
    uncleaned = log.bases()[-1]
    assert {o for o in model.written if o >= uncleaned} <= {record.offset for record in seen}
    for batch in log.batches():
        batch.check_crc()


def producers_of(log: CompactedLog) -> dict[int, tuple[int, int, int, int]]:
    """The producers with data. Of a producer that only wrote markers an empty control batch
    remains, which is ignored on replay, as in Kafka.
    """
    return {
        entry.producer_id: (
            entry.epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.transaction_first_offset,
        )
        for entry in log.log.producers.active_producers.values()
        if entry.last_data_offset >= 0
    }


def check_reopened(log: CompactedLog, model: Model) -> None:
    """The same table from the files alone, and the same producers without any snapshot."""
    before = producers_of(log)
    content = log.content()
    log.log.snapshots.remove_all()
    log.reopen()
    assert log.content() == content
    check(log, model)
    assert producers_of(log) == before


def play(log: CompactedLog, model: Model, step: tuple[Any, ...]) -> None:
    match step:
        case ("put", producer_id, pairs, codec):
            put(log, model, producer_id, pairs, codec)
        case ("end", producer_id, commit):
            end(log, model, producer_id, commit=commit)
        case ("roll",):
            log.roll()
        case ("clean", after_ms):
            log.clean(after_ms=after_ms)
            check(log, model)
            checkpoint = log.cleaner.clean_offset(NAME)
            assert checkpoint is not None
            assert checkpoint <= log.log.last_stable_offset
        case _:
            raise AssertionError(step)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40), st.sampled_from([24 * 4, 24 * 8, 1 << 16]))
def test_compaction_is_invisible_to_a_reader_of_the_whole_topic(
    script: list[tuple[Any, ...]], dedupe_buffer_bytes: int
) -> None:
    log = CompactedLog(
        config=compacting(delete_retention_ms=DELETE_RETENTION_MS, internal_segment_bytes=2000),
        cleaner_config=CleanerConfig(dedupe_buffer_bytes=dedupe_buffer_bytes, io_buffer_bytes=300),
    )
    model = Model()
    for step in script:
        play(log, model, step)
    for producer_id in list(model.open):
        end(log, model, producer_id, commit=producer_id == TRANSACTIONAL[0])
    log.roll()
    for _ in range(40):
        if log.cleaner.assess(log.log, log.now_ms).cleanable_bytes == 0:
            break
        log.clean()
    check(log, model)

    check_reopened(log, model)
    # With all horizons passed, two more passes leave one record per living key.
    log.clean(after_ms=DELETE_RETENTION_MS)
    log.clean(after_ms=DELETE_RETENTION_MS)
    check(log, model)
    assert {r.key: r.value for r in log.records()} == model.values(log.log.last_stable_offset)
    compacted = log.content()
    log.clean(after_ms=DELETE_RETENTION_MS)
    log.clean(after_ms=DELETE_RETENTION_MS)
    final = log.content()
    log.clean(after_ms=DELETE_RETENTION_MS)
    assert log.content() == final
    assert len(final) <= len(compacted)
    check_reopened(log, model)
