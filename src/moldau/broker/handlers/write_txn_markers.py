"""WriteTxnMarkers: a transaction coordinator ends transactions on partitions led by this broker.
The response follows when all markers are committed; the group coordinator writes those in
__consumer_offsets.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from moldau.broker.replicas.partition import Partition
from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.core.coordinator.effects import Marker
from moldau.net.slices import others_first
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.storage.producers.state import AppendOrigin
from moldau.types import ProducerEpoch

AT_ONCE = 20
"""Then other tasks run: the first marker in a new log takes milliseconds."""
_ROOM = 1_000
"""Likewise, of a request's parts that add no marker."""

# A transaction coordinator does not expect errors about the group coordinator.
_REPORTED_AS_MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


async def handle_write_txn_markers(
    ctx: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    writes = _Writes(ctx)
    try:
        room = _ROOM
        for each in _keys(request):
            if each is None:
                room -= 1
            else:
                writes.write(*each)
                room -= _ROOM // AT_ONCE
            if room <= 0:
                await others_first()
                room = _ROOM
        await writes.wait_until_done()
    finally:
        writes.forget()
    return await ctx.work(writes.response)


def _keys(
    request: WriteTxnMarkersRequest,
) -> Iterator[tuple[WritableTxnMarker, str, int] | None]:
    """None for the parts of a request that add no marker, of which there may be very many."""
    for marker in request.markers:
        yield None
        seen: set[tuple[str, int]] = set()
        for topic in marker.topics:
            yield None
            for index in topic.partition_indexes:
                key = (topic.name, index)
                yield None if key in seen else (marker, *key)
                seen.add(key)


class _Writes:
    """Appends all markers before it waits for any of them."""

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._results: dict[int, dict[str, dict[int, ErrorCode]]] = {}
        """By producer id, topic and partition."""
        self._waiting: dict[asyncio.Future[None], tuple[int, str, int]] = {}

    def write(self, marker: WritableTxnMarker, topic: str, index: int) -> None:
        key = (marker.producer_id, topic, index)
        partition = self._ctx.broker.replicas.get(topic, index)
        if partition is None or not partition.has_log:
            self._put(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        try:
            _check(marker)
            if topic == CONSUMER_OFFSETS:
                waiting = self._ctx.broker.groups.end_transaction(index, _for_groups(marker))
            else:
                waiting = self._append(partition, marker)
        except KafkaError as error:
            self._put(key, error.code)
        else:
            self._put(key, ErrorCode.REQUEST_TIMED_OUT)
            self._waiting[waiting] = key

    def _append(self, partition: Partition, marker: WritableTxnMarker) -> asyncio.Future[None]:
        control_type = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        data = end_transaction_marker(
            EndTransactionMarker(control_type, marker.coordinator_epoch),
            MarkerOrigin(marker.producer_id, ProducerEpoch(marker.producer_epoch)),
            self._ctx.broker.clock.wall_ms(),
        )
        result = partition.append(
            data,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=marker.transaction_version,
        )
        return partition.wait_committed(result.last_offset)

    async def wait_until_done(self) -> None:
        """Waits until every marker is committed, or its time is up."""
        if not self._waiting:
            return
        clock, timeout_ms = self._ctx.broker.clock, self._ctx.broker.config.request_timeout_ms
        with contextlib.suppress(TimeoutError):
            async with clock.timeout(timeout_ms):
                await asyncio.wait(self._waiting)
        self.forget()
        for waiting, key in self._waiting.items():
            if not waiting.cancelled():
                error = waiting.exception()
                if error is None:
                    self._put(key, ErrorCode.NONE)
                elif isinstance(error, KafkaError):
                    self._put(key, error.code)
                else:
                    raise error

    def forget(self) -> None:
        """Cancels the waits for markers that are not committed yet."""
        for waiting in self._waiting:
            waiting.cancel()

    def _put(self, key: tuple[int, str, int], code: ErrorCode) -> None:
        producer_id, topic, index = key
        if topic == CONSUMER_OFFSETS and code in _REPORTED_AS_MOVED:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._results.setdefault(producer_id, {}).setdefault(topic, {})[index] = code

    def response(self) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
                                )
                                for index, code in codes.items()
                            ],
                        )
                        for name, codes in topics.items()
                    ],
                )
                for producer_id, topics in self._results.items()
            ]
        )


def _for_groups(marker: WritableTxnMarker) -> Marker:
    return Marker(
        producer_id=marker.producer_id,
        producer_epoch=ProducerEpoch(marker.producer_epoch),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
        commits=marker.transaction_result,
    )


def _check(marker: WritableTxnMarker) -> None:
    if marker.producer_id < 0 or marker.producer_epoch < 0 or marker.transaction_version < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the marker does not end a transaction: {marker}"
        )
