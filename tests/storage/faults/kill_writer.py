"""A real process that writes to a real log directory until it is killed. It prints its
acknowledgements, one line each, unbuffered:

    ack PRODUCER SEQUENCE COUNT FIRST_OFFSET    the batch is acknowledged by the flush policy
    ending PRODUCER commit|abort                the transaction's end is about to be written
    ended PRODUCER commit|abort                 the end is written
"""

import os
import sys
from pathlib import Path
from random import Random

from storage.faults.small_node import START_MS, Node, Setup, small_log

from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.log.retention import delete_old_segments
from moldau.storage.producers.state import AppendOrigin
from moldau.types import LeaderEpoch, ProducerEpoch

IDEMPOTENT, TRANSACTIONAL = 100, 200
# Compaction has work to do and must drop nothing: all keys are different.
CONFIG = small_log(
    cleanup_policy=("compact", "delete"),
    internal_segment_bytes=8_000,
    index_interval_bytes=500,
    retention_bytes=100_000,
    file_delete_delay_ms=0,
)
CODECS = (Compression.NONE, Compression.LZ4, Compression.ZSTD, Compression.GZIP, Compression.SNAPPY)


def setup_at(root: Path, policy: str) -> Setup:
    return Setup(policy, CONFIG, root)


def record_of(producer_id: int, sequence: int, place: int) -> Record:
    """The record that a producer writes with this sequence number."""
    rng = Random(producer_id * 1_000_003 + sequence)
    value = rng.randbytes(rng.randrange(20, 200))
    return Record(place, START_MS + sequence, b"%d-%d" % (producer_id, sequence), value)


class Writer:
    def __init__(self, node: Node, seed: int) -> None:
        self.node = node
        self.rng = Random(seed)
        self.now_ms = START_MS + 1_000_000
        self.waiting: list[tuple[int, str]] = []

    def next_sequence(self, producer_id: int) -> int:
        entry = self.node.log.producers.entry(producer_id)
        return 0 if entry is None else entry.last_sequence + 1

    def put(self, producer_id: int) -> None:
        first, count = self.next_sequence(producer_id), self.rng.randrange(1, 6)
        options = BatchOptions(
            compression=self.rng.choice(CODECS),
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=first,
            is_transactional=producer_id == TRANSACTIONAL,
        )
        records = [record_of(producer_id, first + n, n) for n in range(count)]
        batch = bytearray(build_batch(records, options))
        result = self.node.log.append_as_leader(batch, LeaderEpoch(0), self.now_ms)
        line = f"ack {producer_id} {first} {count} {result.first_offset}"
        self.waiting.append((result.last_offset + 1, line))

    def end_transaction(self) -> None:
        # A producer ends its transaction when all its batches are acknowledged. After a roll that
        # takes a second round, in which the new segment gets its name.
        while self.waiting:
            self.node.flusher.run_round()
            self.acknowledge()
        kind = self.rng.choice((ControlType.COMMIT, ControlType.ABORT))
        report(f"ending {TRANSACTIONAL} {kind.name.lower()}")
        marker = end_transaction_marker(
            EndTransactionMarker(control_type=kind, coordinator_epoch=0),
            MarkerOrigin(producer_id=TRANSACTIONAL, producer_epoch=ProducerEpoch(0)),
            self.now_ms,
        )
        self.node.log.append_as_leader(
            bytearray(marker), LeaderEpoch(0), self.now_ms, origin=AppendOrigin.COORDINATOR,
            transaction_version=0,
        )  # fmt: skip
        report(f"ended {TRANSACTIONAL} {kind.name.lower()}")

    def acknowledge(self) -> None:
        end = self.node.log.countable_end_offset
        for needed, line in [w for w in self.waiting if w[0] <= end]:
            report(line)
            self.waiting.remove((needed, line))
        self.node.commit()

    def step(self, number: int) -> None:
        self.now_ms += 10
        node = self.node
        if (
            node.log.producers.has_open_transaction(TRANSACTIONAL, ProducerEpoch(0))
            and self.rng.randrange(3) == 0
        ):
            self.end_transaction()
        else:
            self.put(self.rng.choice((IDEMPOTENT, IDEMPOTENT, TRANSACTIONAL)))
        if node.setup.policy == "group" and self.rng.randrange(3) == 0:
            node.flusher.run_round()
        self.acknowledge()
        if number % 23 == 0:
            node.cleaner.compact(node.log, self.now_ms)
        if number % 17 == 0:
            delete_old_segments(node.log, self.now_ms)
            run_here(node.logs.removing_deleted(self.now_ms))
        if number % 13 == 0:
            node.flusher.run_round()
            run_here(node.logs.checkpoints.writing())


def report(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def main(root: str, policy: str, seed: str) -> None:
    node = Node(DiskFileSystem(), setup_at(Path(root), policy), START_MS)
    writer = Writer(node, int(seed))
    # More steps than any run completes: the process ends by being killed.
    for number in range(1, 100_000):
        writer.step(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
