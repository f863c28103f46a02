"""Groups that our consumers share with those of other clients: each partition has one reader."""

import asyncio
from collections.abc import Callable

import pytest
from client.clusters import fresh_topic, partitions_of
from third_party.aiokafka_library import AiokafkaLibrary
from third_party.confluent_library import ConfluentLibrary
from third_party.kafka_python_library import KafkaPythonLibrary
from third_party.libraries import ConsumerOptions, Library
from third_party.members import Member

from moldau.aio import Consumer
from moldau.testing import ThreadBroker

WAIT_S = 60


async def drive(consumer: Consumer, until: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not until():
            await consumer.poll(0.02)


@pytest.mark.parametrize(
    "library",
    [ConfluentLibrary(), AiokafkaLibrary(), KafkaPythonLibrary()],
    ids=lambda library: library.name,
)
async def test_members_of_other_clients_share_a_group_with_ours(
    node: ThreadBroker, library: Library
) -> None:
    topic = fresh_topic(node, 4)
    everything = set(partitions_of(topic, 4))
    options = ConsumerOptions(group=topic)
    async with Consumer(
        node.bootstrap,
        group_id=topic,
        heartbeat_interval_ms=50,
        partition_assignment_strategy=["range", "roundrobin"],
    ) as ours:
        ours.subscribe(topic)
        await drive(ours, lambda: ours.assignment() == everything)
        theirs = Member(library, node.bootstrap, [topic], options)
        try:
            await drive(ours, lambda: len(ours.assignment()) == 2 == len(theirs.assignment))
            assert ours.assignment() | theirs.assignment == everything
        finally:
            await asyncio.gather(
                asyncio.to_thread(theirs.leave),
                drive(ours, lambda: ours.assignment() == everything),
            )
