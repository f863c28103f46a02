"""Partitioners for records whose partition the appender does not choose."""

from collections import Counter
from random import Random

import pytest

from moldau.core.producer.partitioners import (
    PARTITIONER_NAMES,
    fnv1a,
    named_partitioner,
    next_sticky,
)


def test_every_partition_gets_its_turn() -> None:
    rng = Random(1)
    found = Counter(next_sticky(4, rng.random()) for _ in range(4_000))
    assert set(found) == {0, 1, 2, 3}
    assert min(found.values()) > 800


def test_partitions_that_lag_get_less() -> None:
    rng = Random(1)
    found = Counter(next_sticky(3, rng.random(), [0, 9, 4]) for _ in range(6_000))
    assert found[0] > found[2] > found[1] > 0


def test_partitions_without_a_leader_are_skipped_while_others_have_one() -> None:
    rng = Random(1)
    chosen = {next_sticky(3, rng.random(), [], [0, 2]) for _ in range(100)}
    assert chosen == {0, 2}
    assert {next_sticky(3, rng.random(), [1, 2, 3], [1]) for _ in range(100)} == {1}
    assert {next_sticky(3, rng.random(), [], []) for _ in range(100)} == {0, 1, 2}


@pytest.mark.parametrize("name", PARTITIONER_NAMES)
def test_all_partitioners_return_existing_partitions(name: str) -> None:
    partitioner = named_partitioner(name, Random(1).random)
    for key in (None, b"", b"a", b"key" * 10):
        assert 0 <= partitioner("t", key, b"value", 7) < 7


def test_fnv_is_unsigned() -> None:
    assert fnv1a(b"") == 0x7EE3623B
    assert all(fnv1a(b"%d" % number) < 1 << 31 for number in range(1_000))
