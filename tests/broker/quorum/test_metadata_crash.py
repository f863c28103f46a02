"""The power fails at any moment: after the next start the metadata is what was committed, in order
and without a gap, and no epoch is used twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from broker.metadata_node import bootstrapped, config, formatted, running

from moldau.core.metadata.image import MetadataImage
from moldau.testing.simulated_disk import Effect, SimulatedDisk

PATH = Path("/data")
# Everything happens often: segments, snapshots, and their removal.
BUSY = {
    "metadata.log.max.record.bytes.between.snapshots": "700",
    "internal.metadata.log.segment.bytes": "900",
    "metadata.max.retention.bytes": "2500",
    "internal.metadata.delete.delay.millis": "0",
}
COMMITS = 24


@dataclass
class CrashPoint:
    """The disk right after one effect, and what had been acknowledged by then."""

    effect: Effect
    disk: SimulatedDisk
    committed: int
    epoch: int


@dataclass
class History:
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    points: list[CrashPoint] = field(default_factory=list)
    committed: int = 0
    epoch: int = 0

    def keep(self, effect: Effect) -> None:
        self.points.append(CrashPoint(effect, self.disk.fork(), self.committed, self.epoch))

    async def run(self, *, lives: int) -> None:
        """Starts, commits and stops several times; each commit increases a number by one."""
        self.disk.on_effect(self.keep)
        for _ in range(lives):
            async with running(PATH, BUSY, filesystem=self.disk) as node:
                self.epoch = node.quorum.leader_epoch
                if node.image.metadata_version is None:
                    await bootstrapped(node)
                for _ in range(COMMITS // lives):
                    await node.commit(config(f"n{self.committed}", "x" * 20))
                    self.committed += 1


def committed_in(image: MetadataImage) -> int:
    """The number of commits, none of which may be missing."""
    names = {name for values in image.configs.values() for name in values if name.startswith("n")}
    numbers = {int(name[1:]) for name in names}
    assert numbers == set(range(len(numbers))), "a commit is missing"
    return len(numbers)


async def judge(point: CrashPoint, disk: SimulatedDisk) -> None:
    async with running(PATH, BUSY, filesystem=disk) as node:
        found = committed_in(node.image)
        assert found >= point.committed, f"{point.committed} were promised, {found} are there"
        assert found <= point.committed + 1, "a commit that was never made"
        assert node.quorum.leader_epoch > point.epoch, "an epoch was used twice"
        await node.commit(config(f"n{found}", "after the crash"))
    async with running(PATH, BUSY, filesystem=disk) as node:
        assert committed_in(node.image) == found + 1


def variants(disk: SimulatedDisk, chance: Random) -> Iterator[SimulatedDisk]:
    """Everything unsynced is there, or nothing, or part of it."""
    yield disk.after_crash(lambda _: True)
    yield disk.after_crash(lambda _: False)
    yield disk.crash(chance)
    yield disk.crash(chance, any_subset=True)


async def history_of(lives: int) -> History:
    history = History()
    formatted(PATH, history.disk)
    await history.run(lives=lives)
    names = " ".join(history.disk.files())
    assert names.count(".checkpoint") > 1
    assert "00000000000000000000.log" not in names, "no segment was ever removed"
    return history


async def test_a_crash_loses_nothing_that_was_committed() -> None:
    history = await history_of(lives=2)
    chance = Random(4)
    seen: set[int] = set()
    for point in history.points[chance.randrange(4) :: 4]:
        disk = chance.choice(list(variants(point.disk, chance)))
        state = hash(tuple(disk.files().items()))
        if state in seen:
            continue
        seen.add(state)
        try:
            await judge(point, disk)
        except Exception as error:
            raise AssertionError(f"after {point.effect}") from error
    assert len(seen) > 40


@pytest.mark.slow
async def test_no_crash_at_all_loses_anything() -> None:
    history = await history_of(lives=3)
    seen: set[tuple[int, int]] = set()
    for point in history.points:
        for name, disk in point.disk.variants_after_crash():
            key = (hash(tuple(disk.files().items())), point.committed)
            if key in seen:
                continue
            seen.add(key)
            try:
                await judge(point, disk)
            except Exception as error:
                raise AssertionError(f"after {point.effect}: {name}") from error
    assert len(seen) > 500


async def test_a_crash_while_formatting_leaves_an_unformatted_directory() -> None:
    """The next format completes it."""
    disk = SimulatedDisk()
    points: list[SimulatedDisk] = []
    disk.on_effect(lambda _: points.append(disk.fork()))
    formatted(PATH, disk)
    meta = str(PATH / "meta.properties")
    chance = Random(1)
    for point in points:
        for left in variants(point, chance):
            if meta not in left.files():
                formatted(PATH, left)
            async with running(PATH, filesystem=left) as node:
                await bootstrapped(node)
                assert node.image.features["metadata.version"] == 30
