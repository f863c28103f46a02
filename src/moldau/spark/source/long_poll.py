"""Waits until there is more to read: each leader is asked to answer when something comes."""

import asyncio
from collections.abc import Mapping

from moldau.client.cluster.node_connection import VersionRange, spoken
from moldau.protocol.errors import MoldauError
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from moldau.protocol.versions import FETCH_TOPIC_IDS
from moldau.spark.runtime.connection import Connection
from moldau.types import CONSUMER_REPLICA, ZERO_UUID, TopicPartition

_LANE = "watch"
_NO_SESSION_EPOCH = -1
_NAMES_VERSION_MAX = FETCH_TOPIC_IDS - 1
_PAUSE_MS = 100
# An answer that says that nothing came is on its way for a while: who goes without it asks again
# at once for what it will say.
_GRACE_MS = 250


class Watch:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cluster = connection.cluster
        self._asked: dict[int, asyncio.Task[None]] = {}

    async def wait_for_more(self, ends: Mapping[TopicPartition, int], wait_ms: int) -> None:
        """Until a leader has more than these ends, `wait_ms` at most. It may return too early:
        look.
        """
        try:
            by_leader = await self._cluster.by_leader(ends)
        except MoldauError:
            await self._cluster.clock.sleep(min(wait_ms, _PAUSE_MS))
            return
        for node_id, partitions in by_leader.items():
            # One who did not answer yet is still being asked: answers come in order.
            if node_id not in self._asked:
                wanted = {one: ends[one] for one in partitions}
                work = self._ask(node_id, wanted, wait_ms)
                self._asked[node_id] = self._cluster.tasks.start(work, f"watch broker {node_id}")
        if not self._asked:
            await self._cluster.clock.sleep(wait_ms)
            return
        done, _ = await asyncio.wait(
            self._asked.values(),
            timeout=(wait_ms + _GRACE_MS) / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._asked = {node: task for node, task in self._asked.items() if task not in done}

    async def _ask(self, node_id: int, ends: Mapping[TopicPartition, int], wait_ms: int) -> None:
        try:
            topics: dict[str, FetchTopic] = {}
            has_ids = True
            for one, offset in ends.items():
                known = await self._cluster.topic(one.topic)
                has_ids = has_ids and known.topic_id != ZERO_UUID
                topic = topics.setdefault(
                    one.topic, FetchTopic(topic=one.topic, topic_id=known.topic_id)
                )
                topic.partitions.append(
                    FetchPartition(
                        partition=one.partition, fetch_offset=offset, partition_max_bytes=1
                    )
                )
            request = FetchRequest(
                replica_id=CONSUMER_REPLICA,
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=1,
                isolation_level=self._connection.fetch.isolation,
                session_id=0,
                session_epoch=_NO_SESSION_EPOCH,
                topics=list(topics.values()),
            )
            ours = spoken(FetchRequest)
            versions = VersionRange(ours.oldest, ours.newest if has_ids else _NAMES_VERSION_MAX)
            connection = await self._cluster.connection(node_id, _LANE)
            timeout_ms = self._connection.fetch.request_timeout_ms + wait_ms
            answer = await connection.ask(request, FetchResponse, versions, timeout_ms=timeout_ms)
            failed = [row for topic in answer.responses for row in topic.partitions]
            if answer.error_code or any(row.error_code for row in failed):
                self._cluster.forget()
                await self._cluster.clock.sleep(_PAUSE_MS)
        except MoldauError:
            self._cluster.forget()
            await self._cluster.clock.sleep(_PAUSE_MS)
