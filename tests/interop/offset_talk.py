"""Conversations of groups (see group_talk.py) that include transactional producers.

    p begins [as=q]                   InitProducerId; with as=, under the transactional id of q
    p adds t-0 …  |  p adds group     AddPartitionsToTxn, AddOffsetsToTxn
    p writes t-0                      one batch
    a commits txn=p t-0=5             TxnOffsetCommit
    p ends commit | abort
    p marks commit | abort t-0 …      WriteTxnMarkers; also coordinator= and version=, `group` for
                                      the partition of the group's offsets
    a awaits t-0 …                    fetches stable offsets until there are some
Everywhere v= is the version, epoch=-1 the epoch before the producer's own, producer=N its id.
Transient states (another transaction that is about to end, a coordinator that is loading) are
waited out, as clients do.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.groups.scenario import Client
from interop.group_talk import Conversation
from support.waiting import wait_for

from moldau.core.coordinator.placement import partition_for
from moldau.net.clock import Clock
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
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
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.schema import Message
from moldau.types import ProducerEpoch

_DATA = Path(__file__).parent.parent / "data"
CONVERSATIONS = sorted((_DATA / "offset_conversations").glob("*.txt"))
HANDOVER = _DATA / "offset_handover"
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offset.metadata.max.bytes": "8",
    "transaction.state.log.num.partitions": "4",
}
PASSING = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@dataclass
class Producer:
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    sequences: Counter[str] = field(default_factory=Counter)
    """The next sequence of each partition, in this epoch."""


class OffsetTalk(Conversation):
    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._producers: dict[str, Producer] = {}

    def _act(self, client: Client, action: str, words: list[str]) -> None:
        actions = {
            "begins": self._begin,
            "adds": self._add,
            "writes": self._write,
            "ends": self._end,
            "marks": self._mark,
            "awaits": self._await,
        }
        if action == "commits" and any(word.startswith("txn=") for word in words):
            self._commit_with_producer(client, words)
        elif action in actions:
            actions[action](client, words)
        else:
            super()._act(client, action, words)

    def transactional_id(self, name: str) -> str:
        return self._producers[name].transactional_id

    def _say(self, client: Client, action: str, what: str) -> None:
        self.lines.append(f"{client.name} {action}: {what}")

    def _producer(self, name: str, options: dict[str, str]) -> tuple[str, int, int]:
        known = self._producers.setdefault(name, Producer(self._named(name)))
        producer_id = int(options.pop("producer", known.producer_id))
        return known.transactional_id, producer_id, known.epoch + int(options.pop("epoch", "0"))

    def _ask(self, name: str, request: Message, version: int) -> Any:
        """Repeats the request until the response is not transient."""
        answers: list[Any] = []

        def answered() -> bool:
            answers.append(self.wire.connection(name).ask(request, version))
            return not PASSING & set(codes_in(answers[-1]))

        wait_for(answered, f"an answer to {request}")
        return answers[-1]

    # Actions of producers

    def _begin(self, client: Client, words: list[str]) -> None:
        options = dict(word.split("=", 1) for word in words)
        name = options.get("as", client.name)
        request = InitProducerIdRequest(
            transactional_id=self._named(name), transaction_timeout_ms=60_000
        )
        answer = self._ask(client.name, request, int(options.get("v", "5")))
        self._producers[client.name] = Producer(
            self._named(name), answer.producer_id, answer.producer_epoch
        )
        self._say(client, "begins", f"{name_of(answer)} epoch={answer.producer_epoch}")

    def _add(self, client: Client, words: list[str]) -> None:
        options, places = split(words)
        version = int(options.pop("v", "3"))
        transactional_id, producer_id, epoch = self._producer(client.name, options)
        if places == ["group"]:
            answer = self._ask(
                client.name,
                AddOffsetsToTxnRequest(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    group_id=client.group_id,
                ),
                version,
            )
        else:
            answer = self._ask(
                client.name,
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=transactional_id,
                    v3_and_below_producer_id=producer_id,
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=[
                        AddPartitionsToTxnTopic(name=topic, partitions=[index])
                        for topic, index in map(place_of, places)
                    ],
                ),
                version,
            )
        self._say(client, "adds", " ".join(code.name for code in codes_in(answer)))

    def _write(self, client: Client, words: list[str]) -> None:
        options, (place,) = split(words)
        version = int(options.pop("v", "12"))
        transactional_id, producer_id, epoch = self._producer(client.name, options)
        topic, index = place_of(place)
        producer = self._producers[client.name]
        batch = build_batch(
            [Record(0, Clock().wall_ms(), b"key", b"value")],
            BatchOptions(
                base_offset=0,
                producer_id=producer_id,
                producer_epoch=ProducerEpoch(epoch),
                base_sequence=producer.sequences[place],
                is_transactional=True,
            ),
        )
        producer.sequences[place] += 1
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=index, records=batch)]
                )
            ],
        )
        answer = self._ask(client.name, request, version)
        self._say(client, "writes", " ".join(code.name for code in codes_in(answer)))

    def _commit_with_producer(self, client: Client, words: list[str]) -> None:
        options = dict(word.split("=", 1) for word in words)
        version = int(options.pop("v", "4"))
        group_id = options.pop("group", client.group_id)
        generation = int(options.pop("generation", client.generation))
        transactional_id, producer_id, epoch = self._producer(options.pop("txn"), options)
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=int(text.partition("/")[0]),
                            committed_metadata=text.partition("/")[2],
                        )
                    ],
                )
                for (topic, index), text in (
                    (place_of(place), text) for place, text in options.items()
                )
            ],
        )
        if version >= 3:
            request.generation_id = generation
            request.member_id = client.member_id
            request.group_instance_id = client.instance_id
        answer = self._ask(client.name, request, version)
        shown = sorted(
            f"{topic.name}-{each.partition_index}={ErrorCode(each.error_code).name}"
            for topic in answer.topics
            for each in topic.partitions
        )
        self._say(client, "commits", " ".join(shown))

    def _end(self, client: Client, words: list[str]) -> None:
        options, (end,) = split(words)
        version = int(options.pop("v", "4"))
        transactional_id, producer_id, epoch = self._producer(client.name, options)
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=end == "commit",
        )
        answer = self._ask(client.name, request, version)
        bump = ""
        if answer.producer_epoch >= 0:
            producer = self._producers[client.name]
            bump = f" epoch={answer.producer_epoch}"
            producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
            producer.sequences.clear()
        self._say(client, "ends", name_of(answer) + bump)

    def _mark(self, client: Client, words: list[str]) -> None:
        options, (end, *places) = split(words)
        version = int(options.pop("v", "2"))
        coordinator_epoch = int(options.pop("coordinator", "0"))
        transaction_version = int(options.pop("version", "0"))
        _, producer_id, epoch = self._producer(client.name, options)
        topics = [
            WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
            for topic, index in (self._place_of(client, place) for place in places)
        ]
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=end == "commit",
            coordinator_epoch=coordinator_epoch,
            topics=topics,
        )
        if version >= 2:
            marker.transaction_version = transaction_version
        answer = self.wire.connection(client.name).ask(
            WriteTxnMarkersRequest(markers=[marker]), version
        )
        codes = {
            (topic.name, each.partition_index): ErrorCode(each.error_code).name
            for topic in answer.markers[0].topics
            for each in topic.partitions
        }
        assert [result.producer_id for result in answer.markers] == [producer_id]
        shown = [f"{p}={codes[self._place_of(client, p)]}" for p in places]
        self._say(client, "marks", " ".join(shown))

    def _place_of(self, client: Client, place: str) -> tuple[str, int]:
        if place == "group":
            return OFFSETS_TOPIC, partition_for(client.group_id, OFFSETS_PARTITIONS)
        return place_of(place)

    # Actions of consumers

    def _await(self, client: Client, words: list[str]) -> None:
        request = OffsetFetchRequest(
            require_stable=True,
            groups=[
                OffsetFetchRequestGroup(
                    group_id=client.group_id,
                    topics=[
                        OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
                        for topic, index in map(place_of, words)
                    ],
                )
            ],
        )
        answers: list[Any] = []

        def is_stable() -> bool:
            answers.append(self.wire.connection(client.name).ask(request, 9))
            return ErrorCode.UNSTABLE_OFFSET_COMMIT not in codes_in(answers[-1])

        wait_for(is_stable, "stable offsets")
        self._say(client, "awaits", self._show_fetched(answers[-1]))


def wait_for_coordinators(address: str) -> None:
    """When asked for a coordinator, a new cluster first creates the internal topic."""

    def are_there() -> bool:
        conversation = OffsetTalk(address)
        try:
            conversation.run("z finds")
            conversation.run("z finds type=1")
            if conversation.lines != ["z finds: NONE a broker"] * 2:
                return False
            # A group of each partition, or nearly so: they are loaded one at a time.
            groups = [OffsetFetchRequestGroup(group_id=f"g-{n}", topics=None) for n in range(40)]
            answer = conversation.wire.connection("z").ask(OffsetFetchRequest(groups=groups), 9)
            return all(group.error_code == 0 for group in answer.groups)
        finally:
            conversation.wire.close()

    wait_for(are_there, "the coordinators")


def split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return options, [word for word in words if "=" not in word]


def place_of(place: str) -> tuple[str, int]:
    topic, index = place.rsplit("-", 1)
    return topic, int(index)


def name_of(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


def codes_in(answer: Any) -> list[ErrorCode]:
    """All error codes of partitions in a response, or else its top-level code."""
    found: list[ErrorCode] = []
    for row in type(answer).FIELDS:
        value = getattr(answer, row[0])
        if isinstance(value, list):
            for each in value:
                if hasattr(type(each), "FIELDS"):
                    found += codes_in(each)
    if not found:
        names = ("error_code", "partition_error_code")
        found = [ErrorCode(getattr(answer, n)) for n in names if hasattr(answer, n)]
    return found
