"""The same log through Apache Kafka's cleaner and through ours, pass by pass at the same times: the
results have the same segments, batches, records, delete horizons and aborted transactions.
"""

import random
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from interop.apache import ApacheOracle
from storage.compaction_logs import HASH_KEY, NAME, CompactedLog, Pair, compacting

from moldau.config.cleaner import CleanerConfig
from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.compression import Compression
from moldau.storage.compaction.cleaner import LogCleaner
from moldau.storage.compaction.plan import CleanableLog
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.types import Offset

pytestmark = pytest.mark.interop

SEEDS = range(60)
LARGE_MAP_BYTES = 24 * 1000
# Six and twelve slots: such maps fill up in the middle of a batch.
SMALL_MAPS_BYTES = (24 * 6, 24 * 12)
TRANSACTIONAL = (2, 3, 4)
# Compared fields of a batch.
HEADER = (
    "base_offset",
    "last_offset",
    "attributes",
    "max_timestamp",
    "delete_horizon_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "partition_leader_epoch",
    "records",
)


class Pass(NamedTuple):
    map_bytes: int
    first_uncleanable_offset: int
    now_ms: int


@dataclass
class Case:
    """One generated log, twice on disk."""

    ours: Path
    apaches: Path
    settings: dict[str, int]
    passes: list[Pass]

    @property
    def config(self) -> Any:
        return compacting(
            internal_segment_bytes=self.settings["internal.segment.bytes"],
            delete_retention_ms=self.settings["delete.retention.ms"],
        )


class Author:
    """Writes a random history: three transactional producers, an idempotent and a plain one."""

    def __init__(self, log: CompactedLog, chance: random.Random, *, transactions: bool) -> None:
        self.log = log
        self.chance = chance
        self.transactions = transactions
        self.epochs = dict.fromkeys(TRANSACTIONAL, 0)
        self.open: set[int] = set()

    def write(self, steps: int) -> None:
        for _ in range(steps):
            self.log.now_ms += self.chance.randrange(50)
            choice = self.chance.random()
            if choice < 0.15:
                self.log.roll()
            elif choice < 0.35 and self.transactions:
                self.end(self.chance.choice(TRANSACTIONAL))
            elif choice < 0.65 and self.transactions:
                producer_id = self.chance.choice(TRANSACTIONAL)
                self.open.add(producer_id)
                self.put(producer_id, self.epochs[producer_id], transactional=True)
            else:
                self.put(self.chance.choice([-1, 1]), 0, transactional=False)
        for producer_id in sorted(self.open):
            self.end(producer_id)
        self.log.roll()
        self.log.put((b"last", b"1"))

    def put(self, producer_id: int, epoch: int, *, transactional: bool) -> None:
        pairs = [self.pair() for _ in range(self.chance.randint(1, 5))]
        self.log.put(
            *pairs,
            producer_id=producer_id,
            epoch=epoch,
            transactional=transactional,
            compression=self.chance.choice(list(Compression)),
            timestamps=[self.log.now_ms - self.chance.randrange(6) for _ in pairs],
        )

    def pair(self) -> Pair:
        value = b"value %d" % self.chance.randrange(99) * self.chance.randint(1, 3)
        return b"k%d" % self.chance.randrange(10), None if self.chance.random() < 0.25 else value

    def end(self, producer_id: int) -> None:
        self.open.discard(producer_id)
        commit = self.chance.random() < 0.5
        self.log.end(producer_id, commit=commit, epoch=self.epochs[producer_id])
        if self.chance.random() < 0.2:
            self.epochs[producer_id] += 1


def make_case(folder: Path, seed: int, *, transactions: bool, maps: tuple[int, ...]) -> Case:
    chance = random.Random(seed)
    settings = {
        "internal.segment.bytes": chance.choice([600, 1500, 5000]),
        "delete.retention.ms": chance.choice([0, 500, 10**6]),
        "index.interval.bytes": 100,
    }
    case = Case(folder / "ours", folder / "apaches", settings, [])
    # Apache Kafka loads producers by its own clock and drops those that are a day old.
    start_ms = int(datetime.now(UTC).timestamp() * 1000) - 3_000_000
    log = CompactedLog(
        filesystem=DiskFileSystem(), root=case.ours, config=case.config, now_ms=start_ms
    )
    Author(log, chance, transactions=transactions).write(chance.randint(5, 60))
    bases = log.bases()
    log.log.close()
    log.directory.close()
    shutil.copytree(case.ours, case.apaches)
    now_ms = log.now_ms
    for end in sorted(chance.sample(bases[1:], min(len(bases) - 1, chance.randint(1, 4)))):
        now_ms += chance.choice([0, 100, 600, 2_000_000])
        case.passes.append(Pass(chance.choice(maps), end, now_ms))
    names = " ".join(f"{name}={value}" for name, value in settings.items())
    passes = "".join(" ".join(map(str, one)) + "\n" for one in case.passes)
    (case.apaches / "passes.txt").write_text(f"cleanup.policy=compact {names}\n{passes}")
    return case


def clean_ours(case: Case) -> list[Offset]:
    log = CompactedLog(filesystem=DiskFileSystem(), root=case.ours, config=case.config)
    first_dirty, ends = 0, []
    for one in case.passes:
        later = [base for base in log.bases() if base >= one.first_uncleanable_offset]
        cleanable = CleanableLog(
            log=log.log,
            first_dirty_offset=Offset(first_dirty),
            first_uncleanable_offset=Offset(later[0]),
            clean_bytes=0,
            cleanable_bytes=1,
            is_overdue=True,
            checkpoint_was_wrong=False,
        )
        config = CleanerConfig(dedupe_buffer_bytes=one.map_bytes)
        cleaner = LogCleaner(log.directory, config, HASH_KEY)
        compaction = cleaner.begin_with(cleanable, one.now_ms)
        while (group := compaction.step()) is not None:
            run_here(cleaner.applying(compaction, group, one.now_ms))
        cleaner.finish(compaction)
        first_dirty = compaction.end_offset
        ends.append(first_dirty)
    log.log.close()
    log.directory.close()
    return ends


def left_in(partition: Path) -> list[Any]:
    """Everything except sizes and positions, which depend on each side's compressor."""
    left: list[Any] = []
    for path in sorted(partition.glob("*.log")):
        left.append((path.name,))
        for batch in iterate_batches(path.read_bytes()):
            batch.check_crc()
            left.append((*(getattr(batch, name) for name in HEADER[:-1]), batch.records()))
    indexes = sorted(partition.glob("*.txnindex"))
    return left + [(path.name, path.read_bytes()) for path in indexes if path.stat().st_size]


@pytest.mark.parametrize(
    ("transactions", "maps"),
    # With transactions and small maps, Apache Kafka's cleaner sometimes treats a committed
    # transaction as aborted while it learns keys, and leaves old values: it uses aborts before the
    # first dirty offset.
    [(True, (LARGE_MAP_BYTES,)), (False, (*SMALL_MAPS_BYTES, LARGE_MAP_BYTES))],
    ids=["transactions", "maps that fill up"],
)
def test_both_cleaners_leave_the_same_log(
    apache: ApacheOracle, tmp_path: Path, transactions: bool, maps: tuple[int, ...]
) -> None:
    cases = [
        make_case(tmp_path / str(seed), seed, transactions=transactions, maps=maps)
        for seed in SEEDS
    ]
    run = apache.run_tool("CleanerOracle", *(str(case.apaches) for case in cases))
    assert run.status == 0, run.errors
    batches = horizons = 0
    for seed, case in zip(SEEDS, cases, strict=True):
        ends = [int(line) for line in (case.apaches / "ends.txt").read_text().split()]
        assert clean_ours(case) == ends, f"seed {seed}"
        found = left_in(case.ours / str(NAME))
        assert found == left_in(case.apaches / str(NAME)), f"seed {seed}"
        headers = [item for item in found if len(item) == len(HEADER)]
        batches += len(headers)
        horizons += sum(header[HEADER.index("delete_horizon_ms")] is not None for header in headers)
    assert batches > 500
    assert horizons > 50
