"""Compaction of files that Apache Kafka 4.3.1 wrote: the same bytes where it compacted them itself,
the same last values everywhere.
"""

import hashlib
from pathlib import Path

import pytest
from storage.samples import CLUSTER_ID, NODE_ID, expected_partitions, unpack

from moldau.config.cleaner import CleanerConfig
from moldau.config.log import LogConfig
from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.control_records import committed_batches
from moldau.storage.compaction.cleaner import LogCleaner
from moldau.storage.compaction.plan import collect_aborted
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.recovery import Checkpointed, LogLocation, open_log
from moldau.types import BrokerId, TopicPartition

NOW_MS = 1_794_732_300_000
HASH_KEY = bytes(16)
COMPACTED = TopicPartition("compacted", 0)


def open_sample(path: Path, name: TopicPartition, *, is_clean: bool = True) -> Log:
    directory = LogDirectory.open(
        DiskFileSystem(), path, cluster_id=CLUSTER_ID, node_id=BrokerId(NODE_ID)
    )
    log = open_log(
        LogLocation(directory=directory, path=path / str(name), topic_partition=name),
        LogOptions(config=LogConfig(cleanup_policy=("compact",))),
        Checkpointed(),
        is_clean=is_clean,
        now_ms=NOW_MS,
    )
    log.raise_high_watermark(log.log_end_offset)
    return log


def last_values(log: Log) -> dict[bytes, tuple[int, bytes]]:
    """Key -> offset and value of the last committed record, without tombstones."""
    content = b"".join(segment.file.read(0, segment.size) for segment in log.segments)
    stable = log.last_stable_offset
    aborted = [(a.producer_id, a.first_offset) for a in collect_aborted(log.segments, stable)]
    table: dict[bytes, tuple[int, bytes]] = {}
    batches = (batch for batch in iterate_batches(content) if batch.base_offset < stable)
    for batch in committed_batches(batches, aborted):
        batch.check_crc()
        for record in batch.records():
            assert record.key is not None
            table.pop(record.key, None)
            if record.value is not None:
                table[record.key] = record.offset, record.value
    return table


def test_the_same_segments_become_the_same_bytes_as_in_apache_kafka(tmp_path: Path) -> None:
    """The broker was killed soon after a compaction: the old segments still exist as *.deleted,
    beside the result of Apache Kafka's compaction.
    """
    path = unpack("dirty", tmp_path)
    partition = path / str(COMPACTED)
    by_apache = (partition / f"{0:020d}.log").read_bytes()
    replaced = sorted(partition.glob("*.deleted"))
    assert [p.name for p in replaced if ".log" in p.name] == [
        f"{base:020d}.log.deleted" for base in (0, 50, 100)
    ]
    for old in replaced:
        old.rename(old.with_name(old.name.removesuffix(".deleted")))
    log = open_sample(path, COMPACTED, is_clean=False)
    assert [segment.base_offset for segment in log.segments] == [0, 50, 100, 150]
    cleaner = LogCleaner(log.directory, CleanerConfig(), HASH_KEY)
    cleaner.forget(COMPACTED)
    cleaner.compact(log, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 150]
    assert (partition / f"{0:020d}.log").read_bytes() == by_apache
    assert cleaner.clean_offset(COMPACTED) == 150


def test_apache_kafkas_checkpoint_is_read(tmp_path: Path) -> None:
    path = unpack("clean", tmp_path)
    log = open_sample(path, COMPACTED)
    cleaner = LogCleaner(log.directory, CleanerConfig(), HASH_KEY)
    assert cleaner.clean_offset(COMPACTED) == 150


def test_the_last_value_that_clients_read_of_each_key_remains(tmp_path: Path) -> None:
    path = unpack("clean", tmp_path)
    expected = {
        record.key: record
        for record in expected_partitions()[COMPACTED].records
        if record.key is not None
    }
    log = open_sample(path, COMPACTED)
    log.roll(NOW_MS)
    cleaner = LogCleaner(log.directory, CleanerConfig(), HASH_KEY)
    compaction = cleaner.compact(log, NOW_MS)
    assert compaction.counts.records_kept == len(expected)
    assert compaction.counts.records_read == len(expected_partitions()[COMPACTED].records)
    left = last_values(log)
    living = {key: record for key, record in expected.items() if record.value_digest is not None}
    assert len(living) < len(expected)
    assert {key.decode() for key in left} == set(living)
    for key, (offset, value) in left.items():
        record = living[key.decode()]
        assert offset == record.offset
        assert hashlib.sha256(value).hexdigest()[:16] == record.value_digest


@pytest.mark.parametrize(
    "name",
    [
        TopicPartition("__consumer_offsets", 0),
        TopicPartition("__consumer_offsets", 1),
        TopicPartition("__transaction_state", 0),
        TopicPartition("__share_group_state", 0),
    ],
    ids=str,
)
def test_internal_topics_keep_their_last_values(name: TopicPartition, tmp_path: Path) -> None:
    log = open_sample(unpack("clean", tmp_path), name)
    before = last_values(log)
    assert before
    log.roll(NOW_MS)
    cleaner = LogCleaner(log.directory, CleanerConfig(), HASH_KEY)
    compaction = cleaner.compact(log, NOW_MS)
    assert last_values(log) == before
    assert compaction.counts.bytes_kept <= compaction.counts.bytes_read
    cleaner.compact(log, NOW_MS + 2 * 86_400_000)
    assert last_values(log) == before
