"""We open, read, recover and extend logs that Apache Kafka 4.3.1 wrote; every record is the one
that Apache's clients read.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from storage.log_maker import close_after_the_test, records_batch, state_of
from storage.samples import (
    CLUSTER_ID,
    NODE_ID,
    ExpectedPartition,
    ExpectedRecord,
    expected_partitions,
    expected_topics,
    unpack,
)

from moldau.config.log import LogConfig
from moldau.config.schema import from_properties
from moldau.protocol.records.batches import Record, iterate_batches
from moldau.protocol.records.control_records import committed_batches
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.directory.logs import Logs
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.read import Isolation
from moldau.types import BrokerId, LeaderEpoch, TopicPartition

EXPECTED = expected_partitions()
TOPICS = expected_topics()
Which = Literal["clean", "dirty"]


def options_for(partition: TopicPartition) -> LogOptions:
    topic = TOPICS.get(partition.topic)
    if topic is None:
        return LogOptions(config=LogConfig(cleanup_policy=("compact",)))
    known = {
        name: value
        for name, value in topic.configs.items()
        if name in {"cleanup.policy", "message.timestamp.type", "segment.bytes"}
    }
    return LogOptions(config=from_properties(LogConfig, known, "topic"))


def load(path: Path, now_ms: int = 0) -> Logs:
    directory = LogDirectory.open(
        DiskFileSystem(), path, cluster_id=CLUSTER_ID, node_id=BrokerId(NODE_ID)
    )
    logs = Logs(directory, options_for)
    logs.load(now_ms)
    close_after_the_test(lambda: abandon(logs))
    return logs


def abandon(logs: Logs) -> None:
    for log in logs.by_partition.values():
        log.abandon()
    logs.directory.close()


@pytest.fixture(params=["clean", "dirty"])
def which(request: pytest.FixtureRequest) -> Which:
    chosen: Which = request.param
    return chosen


@pytest.fixture
def sample(which: Which, tmp_path: Path) -> Path:
    return unpack(which, tmp_path / which)


@pytest.fixture
def logs(sample: Path, which: Which) -> Iterator[Logs]:
    loaded = load(sample)
    if which == "dirty":
        # Its checkpoint is up to five seconds old; the sole replica commits all that it has.
        for log in loaded.by_partition.values():
            log.raise_high_watermark(log.log_end_offset)
    yield loaded
    assert loaded.directory.is_online


def records_of(log: Log, isolation: Isolation, step: int = 1 << 20) -> list[Record]:
    """As a client reads: no control batches, no aborted records, none before the log's start."""
    offset = log.log_start_offset
    found: list[Record] = []
    while True:
        result = log.read(offset, step, isolation=isolation)
        if not len(result.records):
            return found
        aborted = [(a.producer_id, a.first_offset) for a in result.aborted or []]
        for batch in committed_batches(iterate_batches(result.records), aborted):
            found += [record for record in batch.records() if record.offset >= offset]
        offset = result.next_offset


def described(record: Record) -> ExpectedRecord:
    digest = None if record.value is None else hashlib.sha256(record.value).hexdigest()[:16]
    return ExpectedRecord(
        record.offset,  # type: ignore[arg-type]
        record.timestamp,
        None if record.key is None else record.key.decode(),
        digest,
        None if record.value is None else len(record.value),
        tuple((n, None if v is None else v.decode()) for n, v in record.headers),
    )


def newest_per_key(records: list[ExpectedRecord]) -> dict[str | None, str | None]:
    return {r.key: r.value_digest for r in records if r.value_digest is not None}


def test_every_log_opens_sound_and_with_its_topic_id(logs: Logs) -> None:
    assert not logs.unreadable
    assert not logs.unknown_names
    assert set(EXPECTED) <= set(logs.by_partition)
    for partition, log in logs.by_partition.items():
        assert log.damage is None, partition
        if partition.topic in TOPICS:
            assert log.topic_id == TOPICS[partition.topic].topic_id


@pytest.mark.parametrize("partition", sorted(EXPECTED), ids=str)
def test_every_record_equals_the_one_that_apaches_clients_read(
    logs: Logs, which: Which, partition: TopicPartition
) -> None:
    expected: ExpectedPartition = EXPECTED[partition]
    log = logs.by_partition[partition]
    read = [described(r) for r in records_of(log, Isolation.HIGH_WATERMARK)]
    if which == "dirty" and partition.topic == "compacted":
        # Compaction came after the crash: the records differ, but not the last value of a key.
        wanted = newest_per_key(list(expected.records))
        assert {k: v for k, v in newest_per_key(read).items() if k in wanted} == wanted
        return
    assert read == list(expected.records)
    assert log.log_start_offset == expected.log_start
    assert log.high_watermark == expected.high_watermark
    assert log.last_stable_offset == expected.last_stable


@pytest.mark.parametrize("partition", sorted(EXPECTED), ids=str)
def test_committed_readers_see_neither_aborted_nor_open_transactions(
    logs: Logs, which: Which, partition: TopicPartition
) -> None:
    expected = EXPECTED[partition]
    if (which, partition.topic) == ("dirty", "compacted"):
        # It has no transactions, and its offsets changed when it was compacted later.
        return
    committed = [record.offset for record in expected.records]
    if expected.committed_offsets is not None:
        committed = list(expected.committed_offsets)
    log = logs.by_partition[partition]
    for step in (1, 700, 1 << 20):
        read = [record.offset for record in records_of(log, Isolation.COMMITTED, step)]
        assert read == committed


def test_small_reads_and_large_ones_give_the_same_records(logs: Logs) -> None:
    for log in logs.by_partition.values():
        whole = records_of(log, Isolation.LOG_END)
        for step in (0, 100, 1_000, 5_000):
            assert records_of(log, Isolation.LOG_END, step) == whole


def test_recovering_twice_changes_nothing(sample: Path) -> None:
    first = load(sample)
    states = {p: state_of(log) for p, log in first.by_partition.items()}
    for log in first.by_partition.values():
        log.abandon()
    first.directory.close()
    second = load(sample)
    assert {p: state_of(log) for p, log in second.by_partition.items()} == states


def test_a_scan_finds_the_same_state_that_apache_left(tmp_path: Path) -> None:
    trusted = load(unpack("clean", tmp_path / "trusted"))
    (unpack("clean", tmp_path / "scanned") / ".kafka_cleanshutdown").unlink()
    (tmp_path / "scanned" / "recovery-point-offset-checkpoint").unlink()
    scanned = load(tmp_path / "scanned")
    for partition, log in trusted.by_partition.items():
        state = state_of(log)
        rebuilt = state_of(scanned.by_partition[partition])
        for name in ("records", "start", "end", "stable", "epochs", "producers", "aborted"):
            assert rebuilt[name] == state[name], (partition, name)


def test_the_logs_can_be_extended_and_stopped_and_opened_again(sample: Path) -> None:
    logs = load(sample)
    ends: dict[TopicPartition, int] = {}
    for partition, log in logs.by_partition.items():
        before = records_of(log, Isolation.LOG_END)
        epoch = log.epochs.latest_epoch or 0
        appended = log.append_as_leader(
            records_batch([b"ours"]), LeaderEpoch(epoch), 2_000_000_000_000
        )
        assert appended.first_offset == log.log_end_offset - 1
        log.raise_high_watermark(log.log_end_offset)
        assert records_of(log, Isolation.LOG_END)[:-1] == before
        ends[partition] = log.log_end_offset
    logs.stop()
    again = load(sample)
    assert again.directory.clean_stop_epoch is not None
    assert {p: log.log_end_offset for p, log in again.by_partition.items()} == ends
    assert {p: log.high_watermark for p, log in again.by_partition.items()} == ends
    for log in again.by_partition.values():
        assert records_of(log, Isolation.LOG_END)[-1].value == b"ours"
