"""How fast are record batches decoded and built, compared with aiokafka, kafka-python and
confluent-kafka in the same run?

    python benchmarks/record_decoding.py

100-byte values, 8-byte keys, batches of about 64 KiB, one thread. All decoders get the same bytes
and check the checksum. "visit" also looks at key and value of every record, as an application must;
aiokafka and kafka-python make one object per record, Moldau makes tuples or Arrow columns.
confluent-kafka cannot decode without a connection: its number is a consumer that reads from
librdkafka's own mock broker in the same process, so loopback and its fetch loop are part of it, and
so is a second thread. kafka-python needs libraries for snappy, lz4 and zstd that are not installed.
"""

import argparse
import gc
import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from confluent_kafka import Consumer, Producer, TopicPartition
from kept_results import keep

from moldau.protocol.records.arrow import ArrowRead, build_from_arrow, decode_to_arrow
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batch_validation import ValidationRules, validate_batch
from moldau.protocol.records.batches import Record, iterate_batches, patch_base_offset
from moldau.protocol.records.compression import Compression

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

# Many short rounds: the best one is undisturbed even on a busy machine.
ROUNDS = 30
CONFLUENT_ROUNDS = 3
RECORDS_PER_BATCH = 560
TIMESTAMP = 1_700_000_000_000
READ = ArrowRead(topic="bench", partition=0)
KEY_AND_VALUE = ArrowRead(topic="bench", partition=0, columns=("key", "value"))
KAFKA_PYTHON_CODECS = {Compression.NONE, Compression.GZIP}
# A mock topic has four partitions and keeps only 5 MB of each.
CONFLUENT_PARTITIONS, CONFLUENT_RECORDS = 4, 30_000


def sample_records(count: int) -> list[Record]:
    """Values of text that compresses about as well as logs do."""
    words = [b"%05x-" % (number * 2654435761 % 1048576) for number in range(64)]
    records = []
    for index in range(count):
        value = b"".join(words[(index * 7 + place * place) % 64] for place in range(17))[:100]
        records.append(Record(index, TIMESTAMP + index, b"%08d" % index, value))
    return records


def sample_segment(records: list[Record], codec: Compression) -> bytes:
    segment = bytearray()
    for start in range(0, len(records), RECORDS_PER_BATCH):
        part = records[start : start + RECORDS_PER_BATCH]
        segment += build_batch(part, BatchOptions(compression=codec))
    return bytes(segment)


def visit(iterator: Any) -> int:
    count = 0
    for record in iterator:
        key, value = record.key, record.value
        count += key is not value
    return count


def decode_peer(memory_records: Any) -> int:
    count = 0
    while memory_records.has_next():
        batch = memory_records.next_batch()
        if not batch.validate_crc():
            raise SystemExit("a peer does not accept the checksum")
        count += visit(batch)
    return count


def decode_objects(segment: bytes) -> int:
    count = 0
    for batch in iterate_batches(segment):
        batch.check_crc()
        count += visit(batch.records())
    return count


def validate_all(segment: bytearray) -> int:
    rules = ValidationRules(now_ms=TIMESTAMP)
    count = 0
    for batch in iterate_batches(segment):
        count += validate_batch(batch, rules).record_count
    return count


def decoders(segment: bytes, codec: Compression) -> dict[str, Callable[[], int]]:
    produced = bytearray(segment)
    for batch in iterate_batches(segment):
        patch_base_offset(produced, batch.position, 0)
    found: dict[str, Callable[[], int]] = {
        "moldau Arrow": lambda: int(decode_to_arrow(segment, READ).num_rows),
        "moldau Arrow k,v": lambda: int(decode_to_arrow(segment, KEY_AND_VALUE).num_rows),
        "moldau objects": lambda: decode_objects(segment),
        "moldau validate": lambda: validate_all(produced),
        "aiokafka": lambda: decode_peer(AioRecords(segment)),
    }
    if codec in KAFKA_PYTHON_CODECS:
        found["kafka-python"] = lambda: decode_peer(KafkaPythonRecords(segment))
    return found


def build_with(builder_class: Any, records: list[Record], codec: Compression) -> int:
    for start in range(0, len(records), RECORDS_PER_BATCH):
        builder = builder_class(
            magic=2, compression_type=int(codec), is_transactional=0, producer_id=-1,
            producer_epoch=-1, base_sequence=-1, batch_size=1 << 20,
        )  # fmt: skip
        for index, record in enumerate(records[start : start + RECORDS_PER_BATCH]):
            builder.append(index, record.timestamp, record.key, record.value, [])
        builder.build()
    return len(records)


def build_objects(records: list[Record], options: BatchOptions) -> int:
    for start in range(0, len(records), RECORDS_PER_BATCH):
        build_batch(records[start : start + RECORDS_PER_BATCH], options)
    return len(records)


def builders(records: list[Record], codec: Compression) -> dict[str, Callable[[], int]]:
    rows = pa.record_batch(
        {
            "key": pa.array([record.key for record in records]),
            "value": pa.array([record.value for record in records]),
            "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
        }
    )
    options = BatchOptions(compression=codec)

    def build_columns() -> int:
        for _ in build_from_arrow(rows, TIMESTAMP, options, batch_bytes_max=64 << 10):
            pass
        return len(records)

    found: dict[str, Callable[[], int]] = {
        "moldau Arrow": build_columns,
        "moldau objects": lambda: build_objects(records, options),
        "aiokafka": lambda: build_with(AioBuilder, records, codec),
    }
    if codec in KAFKA_PYTHON_CODECS:
        found["kafka-python"] = lambda: build_with(KafkaPythonBuilder, records, codec)
    return found


def best_rates(calls: dict[str, Callable[[], int]], expected: int) -> dict[str, float]:
    """Records a second, the best of rounds that alternate between the libraries."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            gc.collect()
            gc.disable()
            started = perf_counter()
            count = call()
            seconds = perf_counter() - started
            gc.enable()
            if count != expected:
                raise SystemExit(f"{name}: {count} of {expected} records")
            best[name] = max(best.get(name, 0.0), expected / seconds)
    return best


def confluent_rate(records: list[Record], codec: Compression) -> float:
    """Records consumed and visited per second, from the first records to the last: the time before
    is spent on joining and waiting, not on decoding.
    """
    # The clients log at start that they use a mock cluster; level 0 is for emergencies only.
    quiet = {"log_level": 0}
    consumer = Consumer({
        **quiet, "test.mock.num.brokers": 1, "bootstrap.servers": "mock", "group.id": "bench",
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "check.crcs": True,
        "queued.max.messages.kbytes": 1 << 20, "fetch.queue.backoff.ms": 0,
    })  # fmt: skip
    (broker,) = consumer.list_topics(timeout=10).brokers.values()
    producer = Producer({
        **quiet, "bootstrap.servers": f"{broker.host}:{broker.port}", "linger.ms": 20,
        "batch.size": 64 << 10, "compression.type": codec.name.lower(),
        "queue.buffering.max.messages": 1_000_000,
    })  # fmt: skip
    for record in records:
        for partition in range(CONFLUENT_PARTITIONS):
            producer.produce("bench", record.value, record.key, partition)
    if producer.flush(60):
        raise SystemExit("confluent-kafka: the mock broker did not take all records")
    consumer.assign([TopicPartition("bench", number, 0) for number in range(CONFLUENT_PARTITIONS)])
    skipped = len(consumer.consume(1, timeout=10))
    expected, count = len(records) * CONFLUENT_PARTITIONS - skipped, 0
    started = perf_counter()
    while count < expected:
        messages = consumer.consume(min(1_000, expected - count), timeout=10)
        if not messages:
            raise SystemExit(f"confluent-kafka: {count} of {expected} records")
        for message in messages:
            key, value = message.key(), message.value()
            count += key is not value
    seconds = perf_counter() - started
    consumer.close()
    return expected / seconds


def measure(count: int) -> dict[str, dict[str, dict[str, float]]]:
    records, sent = sample_records(count), sample_records(CONFLUENT_RECORDS)
    decoding: dict[str, dict[str, float]] = {}
    building: dict[str, dict[str, float]] = {}
    for codec in Compression:
        name = codec.name.lower()
        segment = sample_segment(records, codec)
        decoding[name] = best_rates(decoders(segment, codec), count)
        decoding[name]["confluent-kafka*"] = max(
            confluent_rate(sent, codec) for _ in range(CONFLUENT_ROUNDS)
        )
        building[name] = best_rates(builders(records, codec), count)
    return {"decoding": decoding, "building": building}


def print_table(title: str, rows: dict[str, dict[str, float]]) -> None:
    libraries = list(rows["none"])
    print(f"\n{title}, million records a second (and how many times that moldau Arrow does)")
    print(f"{'codec':8}" + "".join(f"{name:>24}" for name in libraries))
    for codec, rates in rows.items():
        cells = []
        for name in libraries:
            rate = rates.get(name)
            if rate is None:
                cells.append(f"{'not installed':>24}")
            else:
                ratio = rates["moldau Arrow"] / rate
                cells.append(f"{rate / 1e6:14.2f} ({ratio:6.1f}x)")
        print(f"{codec:8}" + "".join(f"{cell:>24}" for cell in cells))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20 * RECORDS_PER_BATCH)
    options = parser.parse_args()
    rows = measure(options.records)
    for title, table in rows.items():
        print_table(title, table)
    print("\n* with loopback and librdkafka's fetch loop and threads; it has no offline decoder")
    keep(
        "record_decoding",
        records=options.records,
        value_bytes=100,
        records_per_second={
            title: {
                codec: {name: round(rate) for name, rate in rates.items()}
                for codec, rates in table.items()
            }
            for title, table in rows.items()
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
