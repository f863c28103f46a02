"""A transactional producer that does one step at a time, so that a test can kill it, or the node,
between any two. It uses the protocol of transaction version 1 or 2, and retries like real
clients.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Any, NamedTuple, Self

from support.waiting import pause
from support.wire_client import WireClient
from system.node.questions import Place

from moldau.net.clock import Clock
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.schema import Message
from moldau.types import ProducerEpoch

PATIENCE_S = 60.0
"""For everything transient: a node that starts, a coordinator that loads, an end in progress."""
_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_INIT_VERSION = 5

_PASSING = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # A partition's error while the producer's coordinator is not available yet.
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class _Versions(NamedTuple):
    produce: int
    offsets: int
    end: int
    add: int = -1
    add_offsets: int = -1


class Style(Enum):
    """The versions that clients of a transaction version use."""

    V1 = _Versions(produce=11, offsets=4, end=4, add=3, add_offsets=3)
    V2 = _Versions(produce=12, offsets=5, end=5)

    @property
    def adds_itself(self) -> bool:
        """Whether partitions are named before they are written to."""
        return self.value.add >= 0


class WireProducer:
    """Raises KafkaError where a client would raise it to its application."""

    def __init__(
        self,
        address: str,
        transactional_id: str,
        style: Style = Style.V2,
        timeout_ms: int = 60_000,
    ) -> None:
        self.address = address
        self.transactional_id = transactional_id
        self.style = style
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[Place, int] = defaultdict(int)
        self._added: set[Place] = set()
        self._client: WireClient | None = None
        self.has_hung_up = False
        """Whether the last request went out more than once, or may have."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # Steps

    def init(self) -> Self:
        """Takes the transactional id over."""
        self._find_coordinator(_TRANSACTION_KEY, self.transactional_id)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        answer = self._persist(request, _INIT_VERSION, _only_code)
        self.go_on_as(answer.producer_id, answer.producer_epoch)
        return self

    def go_on_as(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()
        self._added.clear()

    def send(self, place: Place, *values: bytes) -> int:
        """The first offset."""
        self.add(place)
        request = self.produce_request(place, *values)
        answer = self._persist(request, self.style.value.produce, _produce_code)
        self._sequences[place] += len(values)
        return int(answer.responses[0].partition_responses[0].base_offset)

    def add(self, place: Place) -> None:
        """Clients of version 2 leave it to the broker."""
        if not self.style.adds_itself or place in self._added:
            return
        topic, index = place
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index])],
        )
        self._persist(request, self.style.value.add, _add_code)
        self._added.add(place)

    def produce_request(self, place: Place, *values: bytes) -> ProduceRequest:
        topic, index = place
        now_ms = Clock().wall_ms()
        content = build_batch(
            [Record(number, now_ms, None, value) for number, value in enumerate(values)],
            BatchOptions(
                base_offset=0,
                producer_id=self.producer_id,
                producer_epoch=ProducerEpoch(self.epoch),
                base_sequence=self._sequences[place],
                is_transactional=True,
            ),
        )
        data = PartitionProduceData(index=index, records=content)
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Without being a member of the group."""
        self._find_coordinator(_GROUP_KEY, group)
        if self.style.adds_itself:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            self._persist(adding, self.style.value.add_offsets, _only_code)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        self._persist(request, self.style.value.offsets, _offsets_code)

    def end(self, *, commits: bool) -> None:
        """Answered when the end is decided."""
        answer = self._persist(self.end_request(commits=commits), self._end_version, _only_code)
        self._ended(answer)

    def end_unheard(self, *, commits: bool) -> bool:
        """One attempt whose response is dropped; returns whether there was one."""
        with suppress(ConnectionError):
            answer = self._connected().ask(self.end_request(commits=commits), self._end_version)
            assert answer.error_code == 0, answer
            return True
        self.hang_up()
        return False

    def begin_end(self, *, commits: bool) -> None:
        """Sends the request without waiting for the response."""
        self._connected().send(self.end_request(commits=commits), self._end_version)

    def end_request(self, *, commits: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )

    @property
    def _end_version(self) -> int:
        return self.style.value.end

    def _ended(self, answer: Any) -> None:
        self._added.clear()
        if not self.style.adds_itself:
            self.go_on_as(answer.producer_id, answer.producer_epoch)

    # Retries

    def _find_coordinator(self, key_type: int, key: str) -> None:
        """The first request creates the coordinators' topic."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        self._persist(request, request.VERSIONS[1], _find_code)

    def _persist(self, request: Message, version: int, code_of: Callable[[Any], int]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        self.has_hung_up = False
        while True:
            code, answer = ErrorCode.NETWORK_EXCEPTION, None
            try:
                answer = self._connected().ask(request, version)
                code = ErrorCode(code_of(answer))
            except ConnectionError:
                self.hang_up()
                self.has_hung_up = True
            if code is ErrorCode.NONE:
                return answer
            if code is not ErrorCode.NETWORK_EXCEPTION and code not in _PASSING:
                raise KafkaError(code, type(request).__name__)
            assert time.monotonic() < deadline, f"{type(request).__name__}: still {code.name}"
            pause()

    def _connected(self) -> WireClient:
        if self._client is None:
            self._client = WireClient(self.address)
        return self._client


def _only_code(answer: Any) -> int:
    return int(answer.error_code)


def _find_code(answer: Any) -> int:
    return int(answer.coordinators[0].error_code)


def _produce_code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def _add_code(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _offsets_code(answer: Any) -> int:
    codes = [each.error_code for topic in answer.topics for each in topic.partitions]
    return next((int(code) for code in codes if code), 0)
