"""Batches that threads validate take no more memory than is counted."""

import asyncio
import random
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest
from broker.data_node import batch, running

from moldau.broker.handlers.produce import HEAVY_BYTES, handle_produce
from moldau.broker.server.context import Staged
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import recompress
from moldau.protocol.records.batches import RecordBatch
from moldau.protocol.records.compression import Compression

VERSION = 12


def heavy_batch() -> bytes:
    """Batches that a thread validates."""
    values = (random.Random(7).randbytes(HEAVY_BYTES * 2),)
    return bytes(recompress(RecordBatch(batch(*values)), Compression.ZSTD))


@pytest.mark.parametrize("count", [1, 20], ids=["one", "many"])
async def test_batches_that_wait_for_a_thread_are_charged_or_not_copied(
    tmp_path: Path, count: int
) -> None:
    sent = heavy_batch()
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=count)
        parts = [PartitionProduceData(index=n, records=memoryview(sent)) for n in range(count)]
        requested = ProduceRequest(
            acks=1, topic_data=[TopicProduceData(name="orders", partition_data=parts)]
        )
        context = node.context(requested, VERSION)
        tracemalloc.start()
        try:
            working = asyncio.ensure_future(cast("Any", handle_produce(context, requested)))
            most = 0
            while not working.done():
                most = max(most, context.broker.budget.held)
                await asyncio.sleep(0)
            _, taken = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        outcome: Any = await working
        response: Any = await outcome.answer if isinstance(outcome, Staged) else outcome
        answers = response.responses[0].partition_responses
        assert [each.error_code for each in answers] == [0] * count
        # Many lie in a buffer of their own, and are copied one after the other.
        assert most == (len(sent) if count == 1 else 0)
        assert taken < 10 * len(sent)
        assert context.broker.budget.held == 0
