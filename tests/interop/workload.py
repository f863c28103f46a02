"""The clients' writes to a live Apache node: every codec, transactions, both clocks, compaction."""

import random
from typing import Any

from interop.live_broker import CLIENT_TIMEOUT_S, LiveBroker, Served

from moldau.types import TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_700_000_000_000
SEGMENT_BYTES = 1 << 20
LONG_TRANSACTION_MS = 600_000
WEEK_MS = 7 * 24 * 3_600_000
PARTITION_COUNTS = {
    "codecs": len(CODECS),
    "segmented": 1,
    "transactions": 2,
    "append-time": 1,
    "compacted": 1,
}
PARTITIONS = [
    TopicPartition(topic, partition)
    for topic, count in PARTITION_COUNTS.items()
    for partition in range(count)
]


def fill(broker: LiveBroker) -> Any:
    """Create the topics and write to them. One transaction is left open: its producer is returned
    so that it stays alive.
    """
    segment_bytes = str(SEGMENT_BYTES)
    # The records are old, and none may expire.
    broker.create_topic("codecs", PARTITION_COUNTS["codecs"], retention_ms="-1")
    broker.create_topic("segmented", retention_ms="-1", segment_bytes=segment_bytes)
    broker.create_topic("transactions", PARTITION_COUNTS["transactions"], retention_ms="-1")
    broker.create_topic("append-time", message_timestamp_type="LogAppendTime")
    broker.create_topic(
        "compacted",
        cleanup_policy="compact",
        segment_bytes=segment_bytes,
        # Apache leaves these records alone for a week: compaction is left to us.
        min_compaction_lag_ms=str(WEEK_MS),
    )
    _write_codecs(broker)
    _write_segmented(broker)
    _write_append_time(broker)
    _write_compacted(broker)
    return _write_transactions(broker)


def read_everything(broker: LiveBroker) -> tuple[Served, Served]:
    """The records that consumers see: read_uncommitted, then read_committed."""
    return broker.read(PARTITIONS), broker.read(PARTITIONS, committed=True)


def _write_codecs(broker: LiveBroker) -> None:
    for partition, codec in enumerate(CODECS):
        producer = broker.producer(compression_type=codec, linger_ms=2, batch_num_messages=40)
        for n in range(300):
            producer.produce(
                "codecs",
                key=None if n % 7 == 0 else b"key-%d" % n,
                value=None if n % 11 == 0 else b"value %d " % n * (n % 50),
                partition=partition,
                timestamp=BASE_MS + n * 1000,
                headers=[("n", b"%d" % n), ("none", None), ("empty", b"")] if n % 3 == 0 else None,
            )
        _flush(producer)


def _write_segmented(broker: LiveBroker) -> None:
    producer = broker.producer(enable_idempotence=True, linger_ms=5)
    for n in range(900):
        value = bytes([n % 256]) * 3500
        producer.produce("segmented", key=b"%d" % n, value=value, timestamp=BASE_MS + n)
    _flush(producer)


def _write_append_time(broker: LiveBroker) -> None:
    producer = broker.producer(compression_type="lz4")
    for n in range(200):
        producer.produce("append-time", key=b"%d" % n, value=b"x" * n, timestamp=BASE_MS)
    _flush(producer)


def _write_compacted(broker: LiveBroker) -> None:
    chance = random.Random(4)
    producer = broker.producer(compression_type="snappy", enable_idempotence=True)
    for n in range(800):
        key = b"key-%d" % (n % 37)
        value = None if n % 37 in {5, 6} and n > 700 else chance.randbytes(4500)
        producer.produce("compacted", key=key, value=value, timestamp=BASE_MS + n)
        if n % 50 == 0:
            _flush(producer)
    _flush(producer)


def _write_transactions(broker: LiveBroker) -> Any:
    timeout = LONG_TRANSACTION_MS
    producer = broker.producer(transactional_id="closed", transaction_timeout_ms=timeout)
    producer.init_transactions(CLIENT_TIMEOUT_S)
    for attempt in range(6):
        producer.begin_transaction()
        for n in range(20):
            for partition in range(PARTITION_COUNTS["transactions"]):
                value = b"attempt %d record %d" % (attempt, n)
                producer.produce("transactions", value=value, partition=partition)
        _flush(producer)
        if attempt % 3 == 1:
            producer.abort_transaction(CLIENT_TIMEOUT_S)
        else:
            producer.commit_transaction(CLIENT_TIMEOUT_S)
    left_open = broker.producer(transactional_id="open", transaction_timeout_ms=timeout)
    left_open.init_transactions(CLIENT_TIMEOUT_S)
    left_open.begin_transaction()
    left_open.produce("transactions", value=b"neither here nor there", partition=1)
    _flush(left_open)
    return left_open


def _flush(producer: Any) -> None:
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
