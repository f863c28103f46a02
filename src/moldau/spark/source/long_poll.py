"""Waits for new records with fetch requests that the leaders answer when records arrive."""

import asyncio
from collections.abc import Mapping

from moldau.client.cluster.node_connection import VersionRange, supported_versions
from moldau.protocol.errors import MoldauError
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from moldau.protocol.versions import FETCH_NAMES_MAX
from moldau.spark.runtime.connection import Connection
from moldau.types import CONSUMER_REPLICA, FINAL_FETCH_EPOCH, ZERO_UUID, TopicPartition

_LANE = "watch"
_PAUSE_MS = 100
# An empty response arrives a little after its deadline. Without this grace period every wait would
# end just before the response, and the next wait would end at once.
_GRACE_MS = 250


class LongPoll:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cluster = connection.cluster
        self._requests: dict[int, asyncio.Task[None]] = {}

    async def wait_for_more(self, ends: Mapping[TopicPartition, int], wait_ms: int) -> None:
        """Waits until a leader has records after these ends, `wait_ms` at most. It may return
        early, so that callers have to check.
        """
        try:
            by_leader = await self._cluster.by_leader(ends)
        except MoldauError:
            await self._cluster.clock.sleep(min(wait_ms, _PAUSE_MS))
            return
        for node_id, partitions in by_leader.items():
            # A request that is not answered yet stays open: responses come in order.
            if node_id not in self._requests:
                fetched = {partition: ends[partition] for partition in partitions}
                work = self._fetch(node_id, fetched, wait_ms)
                self._requests[node_id] = self._cluster.tasks.start(work, f"watch broker {node_id}")
        if not self._requests:
            await self._cluster.clock.sleep(wait_ms)
            return
        done, _ = await asyncio.wait(
            self._requests.values(),
            timeout=(wait_ms + _GRACE_MS) / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._requests = {node: task for node, task in self._requests.items() if task not in done}

    async def _fetch(self, node_id: int, ends: Mapping[TopicPartition, int], wait_ms: int) -> None:
        try:
            topics: dict[str, FetchTopic] = {}
            has_ids = True
            for (name, number), offset in ends.items():
                known = await self._cluster.topic(name)
                has_ids = has_ids and known.topic_id != ZERO_UUID
                topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=known.topic_id))
                topic.partitions.append(
                    FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1)
                )
            request = FetchRequest(
                replica_id=CONSUMER_REPLICA,
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=1,
                isolation_level=self._connection.fetch.isolation,
                session_id=0,
                session_epoch=FINAL_FETCH_EPOCH,
                topics=list(topics.values()),
            )
            ours = supported_versions(FetchRequest)
            versions = VersionRange(ours.oldest, ours.newest if has_ids else FETCH_NAMES_MAX)
            connection = await self._cluster.connection(node_id, _LANE)
            timeout_ms = self._connection.fetch.request_timeout_ms + wait_ms
            response = await connection.send(
                request, FetchResponse, versions, timeout_ms=timeout_ms
            )
            rows = [row for topic in response.responses for row in topic.partitions]
            if response.error_code or any(row.error_code for row in rows):
                self._cluster.forget()
                await self._cluster.clock.sleep(_PAUSE_MS)
        except MoldauError:
            self._cluster.forget()
            await self._cluster.clock.sleep(_PAUSE_MS)
