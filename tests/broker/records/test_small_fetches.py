"""Fetches with tiny limits: each still gets the first batch of its partition."""

from pathlib import Path

import pytest
from broker.data_node import DataNode, batch, running, values_of
from broker.records.test_fetch import fetch, fetch_one, orders, request

PAGE = 4090
"""Just under the bytes between two indexed batches, so that reads end within headers."""


async def fill_pages(node: DataNode, index: int = 0) -> list[bytes]:
    """Ten batches of a page each; the two values of all of them."""
    value = b"x" * 2000
    padded = b"y" * (2000 + PAGE - len(batch(value, value)))
    assert len(batch(value, padded)) == PAGE
    partition = node.replicas.lookup("orders", index)
    appended = [partition.append(batch(value, padded)) for _ in range(10)]
    await partition.wait_committed(appended[-1].last_offset)
    return [value, padded]


@pytest.mark.parametrize("max_bytes", [0, 1, 12, 60, 61])
async def test_a_fetch_of_almost_nothing_finds_its_batch(tmp_path: Path, max_bytes: int) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        values = await fill_pages(node)
        for offset in range(0, 20, 2):
            answer = await fetch_one(node, request(orders(offset, partition_max_bytes=max_bytes)))
            assert answer.error_code == 0
            assert values_of(answer.records) == values


async def test_a_partition_for_which_no_bytes_are_left_stays_sound(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=2)
        for index in (0, 1):
            await fill_pages(node, index)
        for offset in range(0, 20, 2):
            found = await fetch(node, request(orders(offset, 0, 1), max_bytes=2 * PAGE))
            assert [each.error_code for each in found.responses[0].partitions] == [0, 0]
