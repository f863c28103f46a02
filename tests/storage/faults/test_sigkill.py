"""A writer process is killed again and again in the middle of its work, on a real file system. The
page cache survives, so under every flush policy each acknowledged batch exists exactly once.
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from storage.faults import checks
from storage.faults.kill_writer import IDEMPOTENT, TRANSACTIONAL, record_of, setup_at
from storage.faults.small_node import START_MS, Node

from moldau.protocol.records.batches import RecordBatch
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.types import LeaderEpoch, ProducerEpoch

TESTS = Path(__file__).parents[2]


@dataclass
class Promises:
    """(producer id, sequence) -> offset of every acknowledged record that must exist. Records of an
    aborted transaction may be compacted away; while a transaction is being ended its outcome is
    open.
    """

    offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    in_transaction: dict[tuple[int, int], int] = field(default_factory=dict)
    acks: int = 0

    def note(self, line: str) -> None:
        kind, producer, *rest = line.split()
        if kind == "ack":
            self.acks += 1
            self._acknowledged(int(producer), *map(int, rest))
        elif kind == "ending":
            for key in self.in_transaction:
                self.offsets.pop(key, None)
        else:
            if rest == ["commit"]:
                self.offsets |= self.in_transaction
            self.in_transaction.clear()

    def _acknowledged(self, producer_id: int, first: int, count: int, offset: int) -> None:
        for number in range(count):
            key = (producer_id, first + number)
            assert key not in self.offsets, "acknowledged twice"
            self.offsets[key] = offset + number
            if producer_id == TRANSACTIONAL:
                self.in_transaction[key] = offset + number


def write_until_killed(root: Path, policy: str, seed: int, acks: int, promises: Promises) -> None:
    command = [sys.executable, "-m", "storage.faults.kill_writer", str(root), policy, str(seed)]
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    with (
        (root.parent / "writer.err").open("w+") as complaints,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=complaints, env=environment, text=True
        ) as writer,
    ):
        assert writer.stdout is not None
        target = promises.acks + acks
        for line in writer.stdout:
            if line.endswith("\n"):
                promises.note(line)
            if promises.acks == target:
                writer.send_signal(signal.SIGKILL)
                target = -1
        ended = writer.wait()
        complaints.seek(0)
        assert ended == -signal.SIGKILL, f"the writer ended on its own: {complaints.read()}"


def check_after_kill(root: Path, policy: str, promises: Promises, now_ms: int) -> Node:
    node = Node(DiskFileSystem(), setup_at(root, policy), now_ms)
    log = node.log
    assert log.damage is None
    assert not node.logs.unreadable
    found = checks.check_log(log)
    seen: dict[tuple[int, int], int] = {}
    latest: dict[int, int] = {}
    for batch in (RecordBatch(kept.content) for kept in found):
        if batch.is_control:
            continue
        for record in batch.records():
            assert record.key is not None
            sequence = int(record.key.split(b"-")[1])
            key = (batch.producer_id, sequence)
            assert key not in seen, "written twice"
            assert sequence > latest.get(batch.producer_id, -1), "out of order"
            latest[batch.producer_id] = sequence
            seen[key] = record.offset
            expected = record_of(batch.producer_id, sequence, 0)
            assert record.value == expected.value
    for key, offset in promises.offsets.items():
        if offset >= log.log_start_offset:
            assert seen.get(key) == offset, (key, offset, seen.get(key))
    if not log.producers.has_open_transaction(TRANSACTIONAL, ProducerEpoch(0)):
        promises.in_transaction.clear()
    return node


def check_retry(node: Node, now_ms: int) -> None:
    """The producer got no response for its last batch and sends it again."""
    entry = node.log.producers.entry(IDEMPOTENT)
    if entry is None or not entry.batches:
        return
    last = entry.batches[-1]
    for kept in checks.held_batches(node.log):
        if kept.last_offset == last.last_offset:
            retry = bytearray(kept.content)
            retry[:8] = bytes(8)
            answer = node.log.append_as_leader(retry, LeaderEpoch(0), now_ms)
            assert answer.is_duplicate
            assert answer.last_offset == last.last_offset


def kill_often(root: Path, policy: str, kills: int, seed: int) -> Promises:
    rng = Random(seed)
    promises = Promises()
    now_ms = START_MS + 2_000_000
    Node.new(DiskFileSystem(), setup_at(root, policy), START_MS).release()
    for kill in range(kills):
        write_until_killed(root, policy, seed + kill, rng.randrange(1, 60), promises)
        node = check_after_kill(root, policy, promises, now_ms)
        check_retry(node, now_ms)
        if rng.randrange(4) == 0:
            node.stop()
        else:
            node.release()
    return promises


@pytest.mark.parametrize("policy", ["os", "group", "strict"])
def test_a_killed_writer_loses_no_acknowledged_record(policy: str, tmp_path: Path) -> None:
    promises = kill_often(tmp_path / "data", policy, kills=10, seed=1)
    assert promises.acks > 100


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["os", "group", "strict"])
def test_a_hundred_kills_lose_no_acknowledged_record(policy: str, tmp_path: Path) -> None:
    promises = kill_often(tmp_path / "data", policy, kills=110, seed=1_000)
    assert promises.acks > 1_000
