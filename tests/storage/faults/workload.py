"""Generated work on one log, with a model of the expected content. The model never reads the log:
it keeps the bytes that were appended, with the offsets that were returned.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from storage.faults.small_node import NAME, START_MS, Node, Setup

from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch, iterate_batches
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
    marker_of,
)
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.filesystem import FileSystem, read_whole
from moldau.storage.log.retention import delete_old_segments
from moldau.storage.producers.state import AppendOrigin
from moldau.types import LeaderEpoch, Offset, ProducerEpoch

STEP_MS = 1_000
CODECS = (
    Compression.NONE,
    Compression.NONE,
    Compression.GZIP,
    Compression.SNAPPY,
    Compression.LZ4,
    Compression.ZSTD,
)
PLAIN, IDEMPOTENT, TRANSACTIONAL = -1, 100, 200


class Stored(NamedTuple):
    """One batch as it is in the log."""

    base_offset: int
    last_offset: int
    content: bytes


def stored(content: bytes) -> Stored:
    batch = RecordBatch(content)
    return Stored(batch.base_offset, batch.last_offset, content)


@dataclass(frozen=True)
class State:
    """`batches` are all of the current history, also those before `log_start`: a crash may restore
    deleted segments. Nothing below `durable_start` may come back.
    """

    batches: tuple[Stored, ...] = ()
    log_start: int = 0
    log_end: int = 0
    durable_start: int = 0
    leader_epoch: int = 0

    def next_sequence(self, producer_id: int) -> int:
        for batch in (RecordBatch(kept.content) for kept in reversed(self.batches)):
            if batch.producer_id == producer_id and not batch.is_control:
                return batch.last_sequence + 1
        return 0

    def open_transactions(self) -> list[int]:
        opened: dict[int, None] = {}
        for batch in (RecordBatch(kept.content) for kept in self.batches):
            if batch.is_control and marker_of(batch) is not None:
                opened.pop(batch.producer_id, None)
            elif batch.is_transactional:
                opened[batch.producer_id] = None
        return list(opened)


@dataclass
class Step:
    """One operation, with the states before and after it; a crash during it may leave either."""

    name: str
    before: State
    after: State
    in_flight: tuple[Stored, ...] = ()

    def candidates(self) -> list[tuple[Stored, ...]]:
        return [self.before.batches + self.in_flight, self.after.batches]


@dataclass
class Workload:
    """Runs operations on a node. `steps` grows before an operation starts, so that a listener on
    the disk knows which operation is running.
    """

    filesystem: FileSystem
    setup: Setup
    seed: int
    now_ms: int = START_MS
    state: State = field(default_factory=State)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.node = Node.new(self.filesystem, self.setup, self.now_ms)

    def run(self, operations: Iterable[str]) -> None:
        for name in operations:
            self.do(name)

    def do(self, name: str) -> None:
        self.now_ms += STEP_MS
        step = Step(name, self.state, self.state)
        self.steps.append(step)
        try:
            OPERATIONS[name](self, step)
        except MoldauError:
            # Half done: records that it has already deleted are no longer promised.
            start = max(step.after.log_start, self.node.log.log_start_offset)
            step.after = replace(step.after, log_start=start)
            raise
        step.after = self.state
        self.node.commit()

    # Appends

    def records(self, count: int, first_offset: int = 0) -> list[Record]:
        rng = self.rng
        return [
            Record(
                first_offset + number,
                self.now_ms - rng.randrange(3) * STEP_MS // 2,
                b"key-%d" % rng.randrange(6),
                None if rng.randrange(8) == 0 else rng.randbytes(rng.randrange(1, 80)),
            )
            for number in range(count)
        ]

    def options(self, producer_id: int) -> BatchOptions:
        codec = self.rng.choice(CODECS)
        if producer_id < 0:
            return BatchOptions(compression=codec)
        return BatchOptions(
            compression=codec,
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=self.next_sequence(producer_id),
            is_transactional=producer_id >= TRANSACTIONAL,
        )

    def next_sequence(self, producer_id: int) -> int:
        """As in Kafka: a log that knows only a marker of a producer expects sequence 0 from it."""
        entry = self.node.log.producers.entry(producer_id)
        if entry is not None and not entry.batches:
            return 0
        return self.state.next_sequence(producer_id)

    def put(self, step: Step, content: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        """Appends as the leader. The expected content is known before the write."""
        end, epoch = self.state.log_end, self.state.leader_epoch
        expected = bytearray(content)
        expected[:8] = end.to_bytes(8, "big")
        expected[12:16] = epoch.to_bytes(4, "big")
        step.in_flight = (stored(bytes(expected)),)
        version = 0 if origin is AppendOrigin.COORDINATOR else -1
        result = self.node.log.append_as_leader(
            bytearray(content),
            LeaderEpoch(epoch),
            self.now_ms,
            origin=origin,
            transaction_version=version,
        )
        assert not result.is_duplicate
        assert result.first_offset == end
        self.appended(step.in_flight)

    def appended(self, batches: tuple[Stored, ...]) -> None:
        self.state = replace(
            self.state,
            batches=self.state.batches + batches,
            log_end=batches[-1].last_offset + 1,
        )

    def append(self, step: Step, producer_id: int) -> None:
        records = self.records(self.rng.randrange(1, 4))
        self.put(step, build_batch(records, self.options(producer_id)))

    def end_transaction(self, step: Step, *, commit: bool) -> None:
        opened = self.state.open_transactions()
        if not opened:
            self.append(step, TRANSACTIONAL + self.rng.randrange(2))
            return
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = end_transaction_marker(
            EndTransactionMarker(control_type=kind, coordinator_epoch=0),
            MarkerOrigin(producer_id=self.rng.choice(opened), producer_epoch=ProducerEpoch(0)),
            self.now_ms,
        )
        self.put(step, marker, AppendOrigin.COORDINATOR)

    def replicate(self, step: Step) -> None:
        """Appends as a follower: two batches in one write, with gaps if compaction left them at the
        leader. Without compaction there are none, and recovery relies on that.
        """
        gap_max = 2 if self.setup.config.compacts else 1
        first = self.state.log_end + self.rng.randrange(gap_max)
        contents: list[bytes] = []
        for _ in range(2):
            records = self.records(self.rng.randrange(1, 3), first)
            options = BatchOptions(partition_leader_epoch=self.state.leader_epoch)
            contents.append(build_batch(records, options))
            first = records[-1].offset + 1 + self.rng.randrange(gap_max)
        step.in_flight = tuple(map(stored, contents))
        joined = b"".join(contents)
        assert self.node.log.append_as_follower(
            joined, LeaderEpoch(self.state.leader_epoch), self.now_ms
        )
        self.appended(step.in_flight)

    # All other operations

    def truncate(self, step: Step) -> None:
        low = min(self.state.log_start, self.state.log_end)
        self._truncate(step, self.rng.randint(low, self.state.log_end))

    def truncate_a_little(self, step: Step) -> None:
        last = self.state.batches[-1].base_offset if self.state.batches else 0
        self._truncate(step, max(last, self.state.log_start))

    def _truncate(self, step: Step, offset: int) -> None:
        kept = tuple(b for b in self.state.batches if b.last_offset < offset)
        # The possible outcomes of the step are known before it starts: see `Step.candidates`.
        end = kept[-1].last_offset + 1 if kept else 0
        step.after = replace(
            self.state, batches=kept, durable_start=min(self.state.durable_start, end)
        )
        self.node.logs.truncate({NAME: Offset(offset)}, self.now_ms)
        log = self.node.log
        assert log.log_end_offset <= max(offset, self.state.log_start)
        self.state = replace(
            self.state,
            batches=kept if offset < self.state.log_end else self.state.batches,
            log_end=log.log_end_offset,
            log_start=log.log_start_offset,
            durable_start=min(self.state.durable_start, log.log_start_offset),
        )
        self.node.cleaner.truncated(NAME, log.log_end_offset)

    def start_over(self, step: Step) -> None:
        offset = self.state.log_end + self.rng.randrange(5)
        step.after = State((), offset, offset, 0, self.state.leader_epoch)
        self.node.logs.truncate_fully_and_start_at(NAME, Offset(offset), self.now_ms)
        self.state = step.after
        self.node.cleaner.truncated(NAME, Offset(0))

    def delete_records(self, step: Step) -> None:
        log = self.node.log
        offset = self.rng.randint(log.log_start_offset, log.high_watermark)
        step.after = replace(self.state, log_start=max(self.state.log_start, offset))
        start = run_here(self.node.logs.deleting_records({log: Offset(offset)}))[log]
        if isinstance(start, KafkaError):
            raise start
        self.state = replace(self.state, log_start=start, durable_start=start)

    def retain(self, _step: Step) -> None:
        delete_old_segments(self.node.log, self.now_ms)
        self.state = replace(self.state, log_start=self.node.log.log_start_offset)

    def roll(self, _step: Step) -> None:
        self.node.log.roll(self.now_ms)

    def flush(self, _step: Step) -> None:
        self.node.flush()

    def remove_deleted(self, _step: Step) -> None:
        run_here(self.node.logs.removing_deleted(self.now_ms))

    def compact(self, step: Step) -> None:
        try:
            self.node.cleaner.compact(self.node.log, self.now_ms)
        except MoldauError:
            # The segments written so far may be found instead of those they were made from.
            step.in_flight = tuple(self._written_batches())
            raise
        below = [b for b in self.state.batches if b.last_offset < self.state.log_start]
        log = self.node.log
        held = b"".join(bytes(s.file.read(0, s.size)) for s in log.segments)
        found = tuple(stored(bytes(batch.view)) for batch in iterate_batches(held))
        first = found[0].base_offset if found else log.log_end_offset
        below = [b for b in below if b.last_offset < first]
        self.state = replace(self.state, batches=(*below, *found))

    def _written_batches(self) -> Iterator[Stored]:
        directory = self.node.log.path
        for name in self.filesystem.list_directory(directory):
            if ".log" in name:
                content = read_whole(self.filesystem, directory / name)
                yield from (stored(bytes(batch.view)) for batch in iterate_batches(content))

    def checkpoint(self, _step: Step) -> None:
        run_here(self.node.logs.checkpoints.writing())
        self.state = replace(self.state, durable_start=self.state.log_start)

    def start_epoch(self, _step: Step) -> None:
        epoch = self.state.leader_epoch + self.rng.randint(1, 2)
        self.node.log.start_leader_epoch(LeaderEpoch(epoch))
        self.state = replace(self.state, leader_epoch=epoch)

    def restart(self, _step: Step) -> None:
        self.node.stop()
        self.state = replace(self.state, durable_start=self.state.log_start)
        self.node = Node(self.filesystem, self.setup, self.now_ms)
        assert self.node.log.damage is None
        assert self.node.log.log_end_offset == self.state.log_end
        assert self.node.log.log_start_offset == self.state.log_start


OPERATIONS: dict[str, Callable[[Workload, Step], None]] = {
    "append": lambda work, step: work.append(step, PLAIN),
    "append idempotent": lambda work, step: work.append(step, IDEMPOTENT + work.rng.randrange(2)),
    "append in transaction": lambda work, step: work.append(
        step, TRANSACTIONAL + work.rng.randrange(2)
    ),
    "commit": lambda work, step: work.end_transaction(step, commit=True),
    "abort": lambda work, step: work.end_transaction(step, commit=False),
    "replicate": Workload.replicate,
    "roll": Workload.roll,
    "flush": Workload.flush,
    "truncate": Workload.truncate,
    "truncate a little": Workload.truncate_a_little,
    "start over": Workload.start_over,
    "delete records": Workload.delete_records,
    "retention": Workload.retain,
    "remove deleted": Workload.remove_deleted,
    "compact": Workload.compact,
    "checkpoint": Workload.checkpoint,
    "epoch": Workload.start_epoch,
    "restart": Workload.restart,
}
APPENDS = ("append", "append idempotent", "append in transaction", "commit", "abort", "replicate")
OTHERS = tuple(name for name in OPERATIONS if name not in {*APPENDS, "start over", "compact"})


def operations(rng: Random, count: int, *, compacts: bool) -> list[str]:
    """Half of them are appends, so that there is something to lose."""
    others = (*OTHERS, "compact", "compact") if compacts else (*OTHERS, "start over")
    return [rng.choice(APPENDS if rng.randrange(5) < 3 else others) for _ in range(count)]
