"""Every start position that a command can name."""

import pytest
from client.clusters import cluster_of, fresh_topic

from moldau.aio import Producer
from moldau.client.admin.offsets import delete_records
from moldau.client.start_positions import StartAt, StartPosition, start_positions
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (StartAt(StartPosition.BEGINNING), 4),
        (StartAt(StartPosition.END), 10),
        (StartAt(StartPosition.OFFSET, 6), 6),
        (StartAt(StartPosition.OFFSET, 2), 4),
        (StartAt(StartPosition.OFFSET, 99), 10),
        (StartAt(StartPosition.TAIL, 3), 7),
        (StartAt(StartPosition.TAIL, 99), 4),
        (StartAt(StartPosition.TIME, 1_000_000_000_500), 5),
        (StartAt(StartPosition.TIME, 1_000_000_000_501), 6),
        (StartAt(StartPosition.TIME, 1_000_000_009_999), 10),
    ],
)
async def test_every_way_to_begin(node: ThreadBroker, start: StartAt, offset: int) -> None:
    name = fresh_topic(node, message_timestamp_before_max_ms=str(2**62), retention_ms="-1")
    partition = TopicPartition(name, 0)
    async with Producer(node.bootstrap, batch_size=0) as producer:
        for number in range(10):
            await (await producer.send(name, b"", timestamp=1_000_000_000_000 + 100 * number))
    async with cluster_of(node) as cluster:
        await delete_records(cluster, {partition: 4})
        assert await start_positions(cluster, [partition], start) == {partition: offset}
