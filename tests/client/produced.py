"""Helpers for tests of producers: small batches, and all records that a topic has afterwards."""

import asyncio
from typing import Any

from client.clusters import cluster_of, read_all

from moldau import Producer
from moldau.protocol.records.record import Record
from moldau.testing import ProcessBroker, ThreadBroker

PATIENCE_S = 60
SMALL = {"batch_size": 200, "linger_ms": 0}
"""Settings for many batches of a few records each."""


def producer_of(node: ThreadBroker | ProcessBroker, **settings: Any) -> Producer:
    return Producer(node.bootstrap, **settings)


def stored(node: Any, topic: str) -> dict[int, list[Record]]:
    """All records of a topic by partition, in the order of the log."""

    async def read() -> dict[int, list[Record]]:
        async with cluster_of(node) as cluster:
            return await read_all(cluster, topic)

    return asyncio.run(read())


def values_of(node: Any, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in stored(node, topic).get(partition, [])]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(start, start + count)]
