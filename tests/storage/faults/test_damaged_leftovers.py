"""A crash in the middle of a compaction, a deletion or a checkpoint leaves files with a suffix, and
one of them is damaged as well. The last value of every key survives, or the log refuses with an
error.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from storage.faults import checks
from storage.faults.crash_points import CrashPoint, record
from storage.faults.damages import Damage, damages
from storage.faults.small_node import Node, Setup, small_log

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

SETUP = Setup("group", small_log(cleanup_policy=("compact",), internal_segment_bytes=600))
HISTORY = [
    "append", "append idempotent", "append in transaction", "append", "abort", "append",
    "append in transaction", "append idempotent", "commit", "append", "roll", "flush",
    "checkpoint", "compact", "checkpoint",
]  # fmt: skip
LEFTOVERS = (".cleaned", ".swap", ".deleted", ".tmp")


@cache
def points() -> tuple[list[CrashPoint], int]:
    work, found = record(SETUP, 2, HISTORY)
    return [p for p in found if p.step.name in {"compact", "checkpoint"}], work.now_ms


def cases(suffix: str) -> Iterator[tuple[CrashPoint, Damage]]:
    """Each damage of each leftover, at the first crash point where the file is complete."""
    seen: set[tuple[str, int]] = set()
    for point in points()[0]:
        for path, content in point.disk.files().items():
            if path.endswith(suffix) and (path, len(content)) not in seen:
                seen.add((path, len(content)))
                plain = path.removesuffix(suffix)
                for damage in damages(plain, content):
                    yield point, damage._replace(path=path)


def outcome(point: CrashPoint, damage: Damage, now_ms: int) -> str:
    disk = point.disk.after_crash(lambda _: True)
    path = Path(damage.path)
    if damage.content is None:
        disk.remove(path)
    else:
        disk.plant(path, damage.content)
    node = Node(disk, SETUP, now_ms)
    try:
        if node.logs.unreadable or node.log.damage is not None:
            return "refused"
        try:
            found = checks.served(node.log)
        except KafkaError as error:
            return refused(error)
        if damage.is_hidden:
            return "hidden"
        checks.check_log(node.log)
        assert checks.table_of(found) == checks.table_of(point.step.before.batches)
        return "right"
    finally:
        node.release()


def refused(error: KafkaError) -> str:
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    return "refused"


def sweep(suffix: str, every: int) -> Counter[str]:
    now_ms = points()[1] + 1_000
    outcomes: Counter[str] = Counter()
    for point, damage in list(cases(suffix))[::every]:
        try:
            outcomes[outcome(point, damage, now_ms)] += 1
        except Exception as error:
            raise AssertionError(f"{damage.path}: {damage.name}, after {point.effect}") from error
    return outcomes


@pytest.mark.parametrize("suffix", LEFTOVERS)
def test_a_damaged_leftover_loses_no_value_silently(suffix: str) -> None:
    assert sweep(suffix, every=5)["right"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("suffix", LEFTOVERS)
def test_no_damage_to_a_leftover_loses_a_value_silently(suffix: str) -> None:
    assert sweep(suffix, every=1)["right"] > 0
