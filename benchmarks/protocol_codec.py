"""How fast are messages read and written, compared with kio and kafka-python in the same run?

    python benchmarks/protocol_codec.py

Every peer reads the same bytes (checked to be equal after a round trip) and writes the message it
has read. Each number is processor time, the best of many short rounds that alternate between the
libraries.
"""

import argparse
import gc
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from time import process_time
from typing import Any

from kept_results import keep

from moldau.protocol.messages import fetch, metadata, offset_commit, produce
from moldau.protocol.wire import codec
from moldau.protocol.wire.schema import Message
from moldau.types import Uuid

LIBRARIES = ("moldau", "kio", "kafka-python")
ROUNDS = 40
RECORDS = bytes(range(256)) * 4
TOPIC_ID = Uuid(bytes(range(16)))


@dataclass
class Case:
    name: str
    version: int
    message: Message
    kio_module: str
    kafka_module: str


@dataclass
class Row:
    case: str
    operation: str
    microseconds: dict[str, float]

    def ratio(self, peer: str) -> float:
        return self.microseconds[peer] / self.microseconds["moldau"]


def produce_request(partitions: int) -> Message:
    parts = [
        produce.PartitionProduceData(index=index, records=RECORDS) for index in range(partitions)
    ]
    topic = produce.TopicProduceData(name="orders", partition_data=parts)
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response(partitions: int) -> Message:
    parts = [
        produce.PartitionProduceResponse(index=index, base_offset=10**6 + index, log_start_offset=5)
        for index in range(partitions)
    ]
    topic = produce.TopicProduceResponse(name="orders", partition_responses=parts)
    return produce.ProduceResponse(responses=[topic])


def fetch_request(partitions: int) -> Message:
    parts = [
        fetch.FetchPartition(
            partition=index,
            current_leader_epoch=7,
            fetch_offset=10**6 + index,
            partition_max_bytes=1 << 20,
        )
        for index in range(partitions)
    ]
    topic = fetch.FetchTopic(topic="orders", partitions=parts)
    return fetch.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[topic], rack_id="r1"
    )


def fetch_response(partitions: int) -> Message:
    parts = [
        fetch.PartitionData(
            partition_index=index,
            high_watermark=10**6 + index,
            last_stable_offset=10**6 + index,
            log_start_offset=0,
            records=RECORDS,
        )
        for index in range(partitions)
    ]
    topic = fetch.FetchableTopicResponse(topic="orders", partitions=parts)
    return fetch.FetchResponse(session_id=1234, responses=[topic])


def metadata_response(topics: int, partitions: int) -> Message:
    def partition(index: int) -> metadata.MetadataResponsePartition:
        return metadata.MetadataResponsePartition(
            partition_index=index,
            leader_id=index % 3,
            leader_epoch=7,
            replica_nodes=[0, 1, 2],
            isr_nodes=[0, 1, 2],
        )

    return metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092)
            for node in range(3)
        ],
        cluster_id="a-cluster",
        controller_id=1,
        topics=[
            metadata.MetadataResponseTopic(
                name=f"topic-{topic}",
                topic_id=TOPIC_ID,
                partitions=[partition(index) for index in range(partitions)],
            )
            for topic in range(topics)
        ],
    )


def offset_commit_request(partitions: int) -> Message:
    parts = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=10**6, committed_metadata=""
        )
        for index in range(partitions)
    ]
    topic = offset_commit.OffsetCommitRequestTopic(name="orders", partitions=parts)
    return offset_commit.OffsetCommitRequest(
        group_id="billing", member_id="m-1", generation_id_or_member_epoch=3, topics=[topic]
    )


def offset_commit_response(partitions: int) -> Message:
    parts = [
        offset_commit.OffsetCommitResponsePartition(partition_index=index)
        for index in range(partitions)
    ]
    topic = offset_commit.OffsetCommitResponseTopic(name="orders", partitions=parts)
    return offset_commit.OffsetCommitResponse(topics=[topic])


def cases() -> list[Case]:
    kafka_produce = "kafka.protocol.producer"
    kafka_consumer = "kafka.protocol.consumer"
    kafka_metadata = "kafka.protocol.metadata"
    return [
        Case("Produce request, 1", 9, produce_request(1), "produce", kafka_produce),
        Case("Produce request, 100", 9, produce_request(100), "produce", kafka_produce),
        Case("Produce response, 1", 9, produce_response(1), "produce", kafka_produce),
        Case("Fetch request, 1", 12, fetch_request(1), "fetch", kafka_consumer),
        Case("Fetch request, 100", 12, fetch_request(100), "fetch", kafka_consumer),
        Case("Fetch response, 1", 12, fetch_response(1), "fetch", kafka_consumer),
        Case("Fetch response, 100", 12, fetch_response(100), "fetch", kafka_consumer),
        Case("Metadata response, 1000", 12, metadata_response(10, 100), "metadata", kafka_metadata),
        Case(
            "OffsetCommit request, 1", 8, offset_commit_request(1), "offset_commit", kafka_consumer
        ),
        Case(
            "OffsetCommit request, 50",
            8,
            offset_commit_request(50),
            "offset_commit",
            kafka_consumer,
        ),
        Case(
            "OffsetCommit response, 50",
            8,
            offset_commit_response(50),
            "offset_commit",
            kafka_consumer,
        ),
    ]


def readers(case: Case, wire: bytes) -> dict[str, Callable[[], Any]]:
    from kio.serial import entity_reader

    kind = type(case.message)
    part = "request" if kind.__name__.endswith("Request") else "response"
    kio_module = import_module(f"kio.schema.{case.kio_module}.v{case.version}.{part}")
    read_kio = entity_reader(getattr(kio_module, kind.__name__))
    kafka_class = getattr(import_module(case.kafka_module), kind.__name__)
    version = case.version
    return {
        "moldau": lambda: codec.decode(kind, version, wire),
        "kio": lambda: read_kio(wire, 0)[0],
        "kafka-python": lambda: kafka_class.decode(wire, version=version),
    }


def writers(case: Case, wire: bytes) -> dict[str, Callable[[], Any]]:
    from kio.serial import entity_writer

    read = {name: reader() for name, reader in readers(case, wire).items()}
    write_kio = entity_writer(type(read["kio"]))
    # kafka-python 3.0's decode leaves this unset, and its encode then fails.
    read["kafka-python"]._header = None

    def kio_encode() -> bytes:
        out = io.BytesIO()
        write_kio(out, read["kio"])
        return out.getvalue()

    version = case.version
    ours = case.message
    return {
        "moldau": lambda: codec.encode(ours, version),
        "kio": kio_encode,
        "kafka-python": lambda: read["kafka-python"].encode(version=version),
    }


def best_microseconds(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Rounds alternate between the libraries, so that a busy moment hits all of them."""
    counts = {}
    for name, call in calls.items():
        call()
        started = process_time()
        for _ in range(5):
            call()
        counts[name] = max(1, int(seconds / ROUNDS / max((process_time() - started) / 5, 1e-7)))
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            count = counts[name]
            gc.collect()
            started = process_time()
            for _ in range(count):
                call()
            best[name] = min(best[name], (process_time() - started) / count * 1e6)
    return best


def measure(seconds: float) -> list[Row]:
    rows = []
    for case in cases():
        wire = codec.encode(case.message, case.version)
        write = writers(case, wire)
        for name, call in write.items():
            if bytes(call()) != wire:
                raise SystemExit(f"{case.name}: {name} wrote other bytes")
        rows.append(Row(case.name, "read", best_microseconds(readers(case, wire), seconds)))
        rows.append(Row(case.name, "write", best_microseconds(write, seconds)))
    return rows


def print_table(rows: list[Row]) -> None:
    heads = "".join(f"{name + ' µs':>17}" for name in LIBRARIES)
    print(f"{'message, partitions':28}{'':6}{heads}{'kio / us':>10}{'k-p / us':>10}")
    for row in sorted(rows, key=lambda row: row.operation):
        numbers = "".join(f"{row.microseconds[name]:17.2f}" for name in LIBRARIES)
        ratios = f"{row.ratio('kio'):10.1f}{row.ratio('kafka-python'):10.1f}"
        print(f"{row.case:28}{row.operation:6}{numbers}{ratios}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.2, help="per library and row")
    options = parser.parse_args()
    rows = measure(options.seconds)
    print_table(rows)
    keep(
        "protocol_codec",
        microseconds=[
            {"case": row.case, "operation": row.operation, **row.microseconds} for row in rows
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
