"""The generator of `moldau demo`: publishes orders at an even rate, some of them malformed."""

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from moldau.aio import Admin, Producer
from moldau.protocol.enums import ListOffsetsTimestamp
from moldau.protocol.errors import MoldauError
from moldau.types import TopicPartition

if TYPE_CHECKING:
    from moldau.core.producer.batching import Delivery

TOPIC = "orders"
PARTITIONS = 2
_TICK_S = 0.1
_BROKEN_EVERY = 50
_LATE_MAX_S = 5.0
_PEOPLE = ("Felice", "Frieda", "Georg", "Gregor", "Grete", "Josef", "Karl", "Leni", "Max", "Milena")


def order(number: int, now: datetime) -> bytes:
    """The order with this number: always the same, except for its time."""
    chance = random.Random(number)  # noqa: S311 - not used for secrets
    if number % _BROKEN_EVERY == _BROKEN_EVERY - 1:
        return f'{{"id": {number}, "user": "Odradek", "amount": '.encode()
    # Names come in upper and lower case; the pipeline normalises them.
    name = chance.choice(_PEOPLE)
    user = chance.choice((name, name.upper(), name.lower()))
    amount = round(chance.paretovariate(1.6) * 9, 2)
    when = now - timedelta(seconds=chance.uniform(0, _LATE_MAX_S))
    return json.dumps(
        {"id": number, "user": user, "amount": amount, "ts": when.isoformat()}
    ).encode()


async def ends_of(admin: Admin, topic: str, partitions: int) -> list[int]:
    all_partitions = [TopicPartition(topic, number) for number in range(partitions)]
    latest = dict.fromkeys(all_partitions, int(ListOffsetsTimestamp.LATEST))
    offsets = await admin.list_offsets(latest)
    ends = []
    for partition in all_partitions:
        end = offsets[partition]
        if isinstance(end, MoldauError):
            raise end
        ends.append(end.offset)
    return ends


async def publish(bootstrap: str, rate: int, limit: int | None, stop: asyncio.Event) -> None:
    """Publishes orders until it is stopped or has reached the limit. A killed run leaves no gaps or
    duplicates: an order's number follows from its partition and offset.
    """
    async with Admin(bootstrap) as admin:
        next_offsets = await ends_of(admin, TOPIC, PARTITIONS)
    loop = asyncio.get_running_loop()
    begin, published = loop.time(), 0
    sent: list[Delivery] = []
    async with Producer(bootstrap) as producer:
        while not stop.is_set() and published != limit:
            due = int((loop.time() - begin) * rate) - published
            for _ in range(due if limit is None else min(due, limit - published)):
                partition = published % PARTITIONS
                number = next_offsets[partition] * PARTITIONS + partition
                next_offsets[partition] += 1
                value = order(number, datetime.now(UTC))
                sent.append(
                    await producer.send(TOPIC, value, str(number).encode(), partition=partition)
                )
                published += 1
            for delivery in sent:
                await delivery
            sent.clear()
            try:
                async with asyncio.timeout(_TICK_S):
                    await stop.wait()
            except TimeoutError:
                continue
