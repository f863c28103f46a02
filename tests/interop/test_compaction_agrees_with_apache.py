"""Our compaction and Apache Kafka's cleaner keep the same records of the same log."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from interop.apache import ApacheOracle
from interop.dump import dump, faults
from interop.live_broker import CLIENT_TIMEOUT_S, LiveBroker
from interop.our_node import OurNode
from interop.workload import BASE_MS, LONG_TRANSACTION_MS, SEGMENT_BYTES

from moldau.config.log import LogConfig
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop
TOPIC = "compacted"
# Whole transactions only; one is left open in the middle, which limits the cleaning.
CLOSED, OPEN = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
CONFIG = LogConfig(
    cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES, delete_retention_ms=500
)
EAGER_CLEANER = {"log.cleaner.backoff.ms": "100"}
# The time of cleaning determines the horizon; the compressor determines sizes and checksums.
MAY_DIFFER = {"position", "size", "crc", "deleteHorizonMs"}


class Filler:
    """Producers of three kinds that write to a few keys, so that most records are overwritten."""

    def __init__(self, broker: LiveBroker) -> None:
        self.chance = random.Random(12)
        self.plain = broker.producer(compression_type="snappy")
        self.idempotent = broker.producer(enable_idempotence=True, compression_type="zstd")
        timeout = LONG_TRANSACTION_MS
        self.transactional = broker.producer(
            transactional_id="closed", transaction_timeout_ms=timeout
        )
        self.left_open = broker.producer(transactional_id="open", transaction_timeout_ms=timeout)
        for producer in (self.transactional, self.left_open):
            producer.init_transactions(CLIENT_TIMEOUT_S)

    def write(self, producer: Any, partition: int, count: int, *, keys: int = 40) -> None:
        """Every ninth value is a tombstone."""
        for _ in range(count):
            value = None if self.chance.randrange(9) == 0 else self.chance.randbytes(3000)
            key = b"key-%d" % self.chance.randrange(keys)
            producer.produce(TOPIC, key=key, value=value, partition=partition, timestamp=BASE_MS)
        assert producer.flush(CLIENT_TIMEOUT_S) == 0

    def write_transactions(self, partition: int) -> None:
        for turn in range(6):
            self.transactional.begin_transaction()
            self.write(self.transactional, partition, 5)
            if turn % 2:
                self.transactional.abort_transaction(CLIENT_TIMEOUT_S)
            else:
                self.transactional.commit_transaction(CLIENT_TIMEOUT_S)


def create_topic(broker: LiveBroker) -> None:
    broker.create_topic(
        TOPIC,
        2,
        cleanup_policy="compact",
        segment_bytes=str(SEGMENT_BYTES),
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms=str(CONFIG.delete_retention_ms),
    )


def fill(broker: LiveBroker) -> Filler:
    filler = Filler(broker)
    for partition in range(2):
        # The first batches of the idempotent producer lose all records to later keys.
        filler.write(filler.idempotent, partition, 4, keys=4)
        filler.write_transactions(partition)
        filler.write(filler.plain, partition, 500)
        if partition == OPEN.partition:
            filler.left_open.begin_transaction()
            filler.write(filler.left_open, partition, 3)
        filler.write_transactions(partition)
        filler.write(filler.plain, partition, 800)
    return filler


def shown(apache: ApacheOracle, folder: Path) -> dict[str, Any]:
    """Segments, batch headers and records, without the fields that may differ."""
    segments = sorted(folder.glob("*.log"))
    printed = dump(apache, *segments)
    return {
        "segments": [path.name for path in segments],
        "batches": [
            {key: value for key, value in batch.items() if key not in MAY_DIFFER}
            | {"has horizon": batch["deleteHorizonMs"] != "OptionalLong.empty"}
            for batch in printed.batches
        ],
        "records": printed.records,
    }


def clean_as_apache(
    apache: ApacheOracle, folder: Path, clean_up_to: dict[TopicPartition, int]
) -> None:
    with LiveBroker(apache, folder, EAGER_CLEANER) as broker:
        broker.start()
        for name, offset in clean_up_to.items():
            broker.wait_for_cleaning(name, offset)
        broker.stop()


def clean_as_we_do(folder: Path, now_ms: int) -> dict[TopicPartition, int]:
    """Cleans both partitions. Returns up to which offset each is clean."""
    clean_up_to = {}
    with OurNode(folder, configs={TOPIC: CONFIG}, now_ms=now_ms) as node:
        for name in (CLOSED, OPEN):
            log = node[name]
            log.raise_high_watermark(log.log_end_offset)
            clean_up_to[name] = node.compact(log, now_ms)
            log.remove_deleted(now_ms + CONFIG.file_delete_delay_ms)
        node.stop()
    return clean_up_to


def write_as_clients(apache: ApacheOracle, folder: Path, *, is_new: bool) -> None:
    with LiveBroker(apache, folder) as broker:
        if is_new:
            broker.format()
        broker.start()
        if is_new:
            create_topic(broker)
        filler = fill(broker)
        broker.stop()
        del filler


def test_two_passes_keep_the_same_records_batches_and_segments(
    apache: ApacheOracle, tmp_path: Path
) -> None:
    """Last values, markers, aborted data, empty last batches, an open transaction; in the second
    pass tombstones and markers whose horizon Apache set in the first pass are removed.
    """
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for turn in range(2):
        write_as_clients(apache, theirs, is_new=turn == 0)
        ours = tmp_path / f"ours-{turn}"
        shutil.copytree(theirs / "logs", ours)
        before = {name: shown(apache, ours / str(name)) for name in (CLOSED, OPEN)}
        # Apache's clock, as it stamped the files: producers expire by it.
        now_ms = max(int(path.stat().st_mtime * 1000) for path in ours.glob("*/*.log"))

        clean_up_to = clean_as_we_do(ours, now_ms + CONFIG.delete_retention_ms)
        clean_as_apache(apache, theirs, clean_up_to)

        for name in (CLOSED, OPEN):
            result = shown(apache, ours / str(name))
            assert result == shown(apache, theirs / "logs" / str(name))
            assert len(result["records"]) < len(before[name]["records"])
            assert faults(apache, ours / str(name), gaps_allowed=True) == []
        # The open transaction holds back the cleaning of later records.
        assert clean_up_to[OPEN] < clean_up_to[CLOSED]
