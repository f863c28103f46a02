"""Sends the markers that end transactions to the leaders of their partitions, by WriteTxnMarkers,
until each partition has its marker or no longer exists: a decision must reach every partition.

Markers for the same broker that are requested at the same moment share one request.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from moldau.core.controller.topics.topic_names import TRANSACTION_STATE
from moldau.core.coordinator.placement import partition_for
from moldau.net.loop_holds import measured
from moldau.net.tasks import Tasks
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.types import NO_LEADER, BrokerId, ProducerEpoch, TopicPartition

if TYPE_CHECKING:
    from moldau.broker.cluster.metadata_feed import MetadataFeed
    from moldau.broker.cluster.peers import Peers
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT_MAX = 5
"""Requests in flight to one broker. Transactions do not wait for each other, only for the disk."""
REQUEST_PARTITIONS_MAX = 10_000
RETRY_DELAY_MS = 50
RETRY_DELAY_MS_MAX = 1_000

_WRITTEN = frozenset(
    {
        ErrorCode.NONE,
        # The producer could not have written there either.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator owns this producer by now."""
_RETRIED_QUIETLY = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Other errors are retried, too, because a decision cannot be taken back; but they are logged as
warnings.
"""


class MarkersToSend(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    commits: bool
    partitions: Collection[TopicPartition]
    transaction_version: int


OnDone = Callable[[ErrorCode], None]


class _Ending:
    """A transaction that is ending, and the partitions that still lack its marker."""

    __slots__ = ("coordinator_partition", "marker", "missing", "on_done", "retry_delay_ms")

    def __init__(self, marker: MarkersToSend, coordinator_partition: int, on_done: OnDone) -> None:
        self.marker = marker
        self.coordinator_partition = coordinator_partition
        self.on_done = on_done
        self.missing = set(marker.partitions)
        self.retry_delay_ms = RETRY_DELAY_MS


class _Part(NamedTuple):
    """The part of a transaction that one broker is to write."""

    ending: _Ending
    partitions: list[TopicPartition]


class _Destination:
    __slots__ = ("in_flight", "waiting")

    def __init__(self) -> None:
        self.in_flight = 0
        self.waiting: deque[_Part] = deque()


class TransactionMarkers:
    """Bounded by the number of transactional ids coordinated here: each has at most one transaction
    that is ending.
    """

    def __init__(self, peers: "Peers", feed: "MetadataFeed", clock: "Clock") -> None:
        self._peers = peers
        self._feed = feed
        self._clock = clock
        self._tasks = Tasks(are_measured=True)
        self._endings: dict[str, _Ending] = {}
        self._destinations: dict[BrokerId, _Destination] = {}

    def __len__(self) -> int:
        """The number of transactions that wait for their markers."""
        return len(self._endings)

    def send(self, marker: MarkersToSend, on_done: OnDone) -> None:
        """Calls `on_done` later: with NONE when every partition has its marker, or with the reason
        why this coordinator must stop sending. An earlier marker of the same transactional id is
        dropped.
        """
        topic = self._feed.image.topic(TRANSACTION_STATE)
        count = max(len(topic.partitions) if topic is not None else 0, 1)
        transactional_id = marker.transactional_id
        ending = _Ending(marker, partition_for(transactional_id, count), on_done)
        self._endings[transactional_id] = ending
        # Not at once: the caller is in the middle of its own turn.
        loop = asyncio.get_running_loop()
        loop.call_soon(measured, "marker", self._route, ending, sorted(ending.missing))

    def cancel(self, coordinator_partition: int) -> None:
        """That partition of __transaction_state is coordinated elsewhere. No callback is called."""
        for ending in list(self._endings.values()):
            if ending.coordinator_partition == coordinator_partition:
                self._forget(ending)

    async def stop(self) -> None:
        self._endings.clear()
        await self._tasks.close()

    # From a transaction to its brokers

    def _is_alive(self, ending: _Ending) -> bool:
        return self._endings.get(ending.marker.transactional_id) is ending

    def _forget(self, ending: _Ending) -> None:
        if self._is_alive(ending):
            del self._endings[ending.marker.transactional_id]

    def _route(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        if not self._is_alive(ending):
            return
        leaderless: list[TopicPartition] = []
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for topic_partition in partitions:
            leader = self._leader_of(topic_partition)
            if leader is None:
                _log.info("%s is deleted and needs no marker", topic_partition)
                ending.missing.discard(topic_partition)
            elif leader == NO_LEADER:
                leaderless.append(topic_partition)
            else:
                by_leader.setdefault(leader, []).append(topic_partition)
        for broker_id, led in by_leader.items():
            destination = self._destinations.setdefault(broker_id, _Destination())
            destination.waiting.append(_Part(ending, led))
            self._start_request(broker_id, destination)
        if leaderless:
            self._retry(ending, leaderless)
        self._finish_if_complete(ending)

    def _leader_of(self, topic_partition: TopicPartition) -> BrokerId | None:
        topic = self._feed.image.topic(topic_partition.topic)
        partition = None if topic is None else topic.partitions.get(topic_partition.partition)
        return None if partition is None else partition.leader

    def _retry(self, ending: _Ending, partitions: list[TopicPartition]) -> None:
        delay_ms = ending.retry_delay_ms
        ending.retry_delay_ms = min(delay_ms * 2, RETRY_DELAY_MS_MAX)
        self._clock.call_later(delay_ms, lambda: self._route(ending, partitions))

    def _finish_if_complete(self, ending: _Ending) -> None:
        if not ending.missing:
            self._finish(ending, ErrorCode.NONE)

    def _finish(self, ending: _Ending, code: ErrorCode) -> None:
        # A failure in the coordinator's callback must not hold up other markers.
        asyncio.get_running_loop().call_soon(measured, "marker", self._notify, ending, code)

    def _notify(self, ending: _Ending, code: ErrorCode) -> None:
        if self._is_alive(ending):
            self._forget(ending)
            ending.on_done(code)

    # From a broker's parts to a request

    def _start_request(self, broker_id: BrokerId, destination: _Destination) -> None:
        """The task begins after all callers of this moment have added their parts."""
        if destination.in_flight < REQUESTS_IN_FLIGHT_MAX:
            destination.in_flight += 1
            _ = self._tasks.start(self._work(broker_id, destination), f"markers-{broker_id}")

    async def _work(self, broker_id: BrokerId, destination: _Destination) -> None:
        try:
            while parts := self._take(destination):
                await self._request(broker_id, parts)
        finally:
            destination.in_flight -= 1

    def _take(self, destination: _Destination) -> list[_Part]:
        parts: list[_Part] = []
        room = REQUEST_PARTITIONS_MAX
        while destination.waiting and room > 0:
            part = destination.waiting.popleft()
            if self._is_alive(part.ending):
                parts.append(part)
                room -= len(part.partitions)
        return parts

    async def _request(self, broker_id: BrokerId, parts: list[_Part]) -> None:
        request = WriteTxnMarkersRequest(markers=[_writable_marker(part) for part in parts])
        refusal = ErrorCode.BROKER_NOT_AVAILABLE
        try:
            answer = await self._peers.send(broker_id, request)
            codes = _codes(cast("WriteTxnMarkersResponse", answer))
        except KafkaError as error:
            _log.warning("broker %d did not accept markers: %s", broker_id, error)
            codes, refusal = {}, error.code
        for part in parts:
            if self._is_alive(part.ending):
                of_producer = codes.get(part.ending.marker.producer_id, {})
                self._answered(part, {p: of_producer.get(p, refusal) for p in part.partitions})

    def _answered(self, part: _Part, codes: dict[TopicPartition, ErrorCode]) -> None:
        ending = part.ending
        name = ending.marker.transactional_id
        to_retry: list[TopicPartition] = []
        for topic_partition, code in codes.items():
            if code in _WRITTEN:
                ending.missing.discard(topic_partition)
            elif code in _FENCED:
                _log.info(
                    "giving up on the markers of %r: %s answered %s",
                    name,
                    topic_partition,
                    code.name,
                )
                self._finish(ending, code)
                return
            else:
                level = logging.DEBUG if code in _RETRIED_QUIETLY else logging.WARNING
                _log.log(level, "%s has no marker for %r yet: %s", topic_partition, name, code.name)
                to_retry.append(topic_partition)
        if to_retry:
            self._retry(ending, to_retry)
        self._finish_if_complete(ending)


def _writable_marker(part: _Part) -> WritableTxnMarker:
    marker = part.ending.marker
    by_topic: dict[str, list[int]] = {}
    for topic, partition in part.partitions:
        by_topic.setdefault(topic, []).append(partition)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commits,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic.items()
        ],
    )


def _codes(answer: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """Error codes by producer id."""
    codes: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in answer.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for each in topic.partitions:
                code = error_code(each.error_code)
                of_producer[TopicPartition(topic.name, each.partition_index)] = code
    return codes
