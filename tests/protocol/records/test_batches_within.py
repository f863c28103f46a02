"""The extent of batches by their headers alone: the end of a fetch, and the start of the
next one.
"""

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.batch_damage import damage
from protocol.batch_strategies import IMPLEMENTATIONS, compiled, simple_records

from moldau.protocol.records import _records_twin
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import patch_base_offset

SIZES = (3, 1, 2)
EVERY_BYTE = 2**31
ANY_OFFSET = 2**62


def three_batches() -> tuple[bytes, list[bytes]]:
    """Batches from offset 10 on, and the single batches that they consist of."""
    batches: list[bytes] = []
    offset = 10
    for count in SIZES:
        batch = bytearray(
            build_batch(simple_records(count), BatchOptions(partition_leader_epoch=7))
        )
        patch_base_offset(batch, 0, offset)
        batches.append(bytes(batch))
        offset += count
    return b"".join(batches), batches


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
def test_the_result_ends_with_the_last_batch_within_reach(loops: tuple[Any, Any]) -> None:
    within = loops[0].batches_within
    content, (first, second, third) = three_batches()
    both = len(first) + len(second)
    for reach, end, next_offset, following in (
        (len(first) - 1, 0, -1, (len(first), 10, 12)),
        (len(first), len(first), 13, (len(second), 13, 13)),
        (both - 1, len(first), 13, (len(second), 13, 13)),
        (both, both, 14, (len(third), 14, 15)),
        (both + 70, both, 14, (len(third), 14, 15)),
        (len(content), len(content), 16, None),
    ):
        found = within(content, reach, len(content), 10, ANY_OFFSET)
        assert found[:2] == (end, next_offset)
        assert (found[2] and found[2][:4]) == (following and (*following, 7))


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
def test_a_batch_beyond_the_buffer_is_left_for_the_next_call(loops: tuple[Any, Any]) -> None:
    within = loops[0].batches_within
    content, (first, second, _) = three_batches()
    size = len(content)
    # The whole header of the second batch, though not its records.
    assert within(content[: len(first) + 61], EVERY_BYTE, size, 0, ANY_OFFSET) == (
        len(first) + len(second), 14, None
    )  # fmt: skip
    assert within(content[: len(first) + 60], EVERY_BYTE, size, 0, ANY_OFFSET) == (
        len(first), 13, None
    )  # fmt: skip
    assert within(content[:60], EVERY_BYTE, size, 0, ANY_OFFSET) == (0, -1, None)
    assert within(b"", EVERY_BYTE, size, 0, ANY_OFFSET) == (0, -1, None)


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("at", "kind", "number"),
    [
        (8, ">i", 48), (8, ">i", -1), (8, ">i", 2**31 - 1), (16, ">b", 1), (0, ">q", 9),
        (0, ">q", -5), (0, ">q", 2**63 - 1), (23, ">i", -1), (23, ">i", 2**31 - 1),
    ],
)  # fmt: skip
def test_nothing_is_returned_for_wrong_headers(
    loops: tuple[Any, Any], at: int, kind: str, number: int
) -> None:
    content, _ = three_batches()
    damaged = bytearray(content)
    struct.pack_into(kind, damaged, at, number)
    for reach in (1, EVERY_BYTE):
        assert loops[0].batches_within(damaged, reach, len(content), 10, 1_000) == (-1, -1, None)


@given(
    seed=st.randoms(use_true_random=False),
    reach=st.integers(0, 1_000),
    left=st.integers(0, 1_000),
    floor_offset=st.integers(0, 20),
)
@settings(deadline=None, max_examples=300)
def test_loop_and_twin_find_the_same(
    seed: Random, reach: int, left: int, floor_offset: int
) -> None:
    content, _ = three_batches()
    for each in (content, damage(content, seed)):
        arguments = (each, reach, left, floor_offset, 2**63 - 1)
        assert compiled.batches_within(*arguments) == _records_twin.batches_within(*arguments)
