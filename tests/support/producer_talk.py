"""Conversations of transactional producers with a node, as text: their requests, and after a line
of dashes the responses. The same text holds for Apache Kafka and for Moldau.

    a inits [v=4] [timeout=MS] [keeps]       keeps: continues with its current id and epoch
    a adds t-0 t-1 [v=3]                     a commits | aborts [v=4]
    a writes t-0=x,y t-1=~z [v=11] [plain]   values, one batch for each partition; ~ is a plain one
    r reads t-0 [from=3] [uncommitted]       r ends t-0 [at=any | start | newest]
    z looks t-0                              z deletes t-0=3 (the records before)

With most: epoch=1 or epoch=-1 (absolute, or with a sign relative to its own), pid=b (that of
another producer), id=b, id=none, id=empty (a transactional id), seq=5, acks=1. A producer remembers
its id, epoch and sequences from responses, as clients do. Markers are shown as +a and -a. Each
conversation creates its own topics, with three partitions.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.running_node import fresh_name
from support.waiting import pause, wait_for
from support.wire_client import WireClient, create_topic

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch, iterate_batches
from moldau.protocol.records.control_records import ControlType, marker_of
from moldau.protocol.wire.schema import Message
from moldau.types import NO_PRODUCER_ID, Uuid

CONVERSATIONS = sorted(
    (Path(__file__).parents[1] / "data" / "producer_conversations").glob("*.txt")
)
DASHES = "----"
PARTITIONS = 3
TIME_MS = 1_900_000_000_000
ASKED_AGAIN_MAX = 1000
TRANSACTIONS = 1
BUMPS_FROM = 5

_BUSY = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}

_TIMES = {"end": -1, "start": -2, "newest": -3, "any": TIME_MS}

Place = tuple[str, int]


@dataclass
class Talker:
    name: str
    wire: WireClient
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[Place, int] = field(default_factory=dict)


@dataclass
class Line:
    """`a writes t-0=x v=9 plain`: talker, verb, and the rest."""

    talker: str
    verb: str
    places: list[tuple[Place, str]]
    options: dict[str, str]
    words: set[str]

    @classmethod
    def parsed(cls, text: str) -> "Line":
        talker, verb, *rest = text.split()
        places: list[tuple[Place, str]] = []
        options: dict[str, str] = {}
        words: set[str] = set()
        for each in rest:
            left, equals, right = each.partition("=")
            topic, dash, index = left.rpartition("-")
            if dash and index.isdigit():
                places.append(((topic, int(index)), right))
            elif equals:
                options[left] = right
            else:
                words.add(left)
        return cls(talker, verb, places, options, words)

    def number(self, name: str, default: int) -> int:
        return int(self.options.get(name, default))


class Conversation:
    def __init__(self, address: str) -> None:
        self._address = address
        self._talkers: dict[str, Talker] = {}
        self._topics: dict[str, str] = {}
        self._topic_ids: dict[str, bytes] = {}

    def close(self) -> None:
        for talker in self._talkers.values():
            talker.wire.close()

    def say(self, text: str) -> str:
        """The response to the talker."""
        line = Line.parsed(text)
        talker = self._talker(line.talker)
        answer = getattr(self, f"_{line.verb}")(talker, line)
        return f"{line.talker} {line.verb}: {answer}"

    # Actions of producers

    def _inits(self, talker: Talker, line: Line) -> str:
        before = talker.producer_id
        keeps = "keeps" in line.words
        request = InitProducerIdRequest(
            transactional_id=self._id(talker, line),
            transaction_timeout_ms=line.number("timeout", 60_000),
            producer_id=self._producer_id(talker, line) if keeps else -1,
            producer_epoch=self._epoch(talker, line) if keeps else -1,
        )
        answer = self._ask(talker, request, line.number("v", 4))
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        talker.producer_id, talker.epoch = answer.producer_id, answer.producer_epoch
        talker.sequences.clear()
        whose = "" if before in {-1, talker.producer_id} else " as another"
        return f"NONE epoch={talker.epoch}{whose}"

    def _adds(self, talker: Talker, line: Line) -> str:
        by_topic: dict[str, list[int]] = {}
        for (topic, index), _ in line.places:
            by_topic.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id(talker, line) or "",
            v3_and_below_producer_id=self._producer_id(talker, line),
            v3_and_below_producer_epoch=self._epoch(talker, line),
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=self._topic(topic), partitions=indexes)
                for topic, indexes in by_topic.items()
            ],
        )
        answer = self._ask(talker, request, line.number("v", 3))
        codes = {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        return _joined(
            (place, ErrorCode(codes[self._topic(place[0]), place[1]]).name)
            for place, _ in line.places
        )

    def _writes(self, talker: Talker, line: Line) -> str:
        version = line.number("v", 11)
        epoch = self._epoch(talker, line)
        by_topic: dict[str, list[PartitionProduceData]] = {}
        counts: dict[Place, tuple[int, int]] = {}
        for place, values in line.places:
            sequence = line.number("seq", talker.sequences.get(place, 0))
            content = values.split(",")
            counts[place] = sequence, len(content)
            is_plain = "plain" in line.words or values.startswith("~")
            batch = _batch(
                [value.removeprefix("~") for value in content],
                producer_id=self._producer_id(talker, line),
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=not is_plain,
            )
            by_topic.setdefault(place[0], []).append(
                PartitionProduceData(index=place[1], records=batch)
            )
        request = ProduceRequest(
            transactional_id=self._id(talker, line),
            acks=line.number("acks", -1),
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=self._topic(topic),
                    topic_id=Uuid(self._topic_ids.get(topic, bytes(16))),
                    partition_data=data,
                )
                for topic, data in by_topic.items()
            ],
        )
        answer = self._ask(talker, request, version)
        results: dict[Place, str] = {}
        for topic, found in zip(by_topic, answer.responses, strict=True):
            for each in found.partition_responses:
                place = topic, each.index
                results[place] = ErrorCode(each.error_code).name
                if each.error_code == 0:
                    sequence, count = counts[place]
                    talker.sequences[place] = max(sequence + count, talker.sequences.get(place, 0))
                    results[place] += f"@{each.base_offset}"
        return _joined((place, results[place]) for place, _ in line.places)

    def _commits(self, talker: Talker, line: Line) -> str:
        return self._end(talker, line, commits=True)

    def _aborts(self, talker: Talker, line: Line) -> str:
        return self._end(talker, line, commits=False)

    def _end(self, talker: Talker, line: Line, *, commits: bool) -> str:
        """Sends it twice: the second response comes when all markers are written."""
        version = line.number("v", 4)
        request = EndTxnRequest(
            transactional_id=self._id(talker, line) or "",
            producer_id=self._producer_id(talker, line),
            producer_epoch=self._epoch(talker, line),
            committed=commits,
        )
        answer = self._ask(talker, request, version)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        again = self._ask(talker, request, version)
        assert again.error_code == 0, ErrorCode(again.error_code).name
        if version < BUMPS_FROM:
            return "NONE"
        if (answer.producer_id, answer.producer_epoch) != (talker.producer_id, talker.epoch):
            talker.producer_id, talker.epoch = answer.producer_id, answer.producer_epoch
            talker.sequences.clear()
        return f"NONE epoch={talker.epoch}"

    # Actions of readers

    def _reads(self, talker: Talker, line: Line) -> str:
        ((topic, index), _) = line.places[0]
        start = line.number("from", 0)
        wanted = FetchPartition(partition=index, fetch_offset=start, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_bytes=1 << 20,
            isolation_level=int("uncommitted" not in line.words),
            topics=[FetchTopic(topic=self._topic(topic), partitions=[wanted])],
        )
        (answer,) = talker.wire.ask(request, 12).responses[0].partitions
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        seen = [each for batch in iterate_batches(answer.records or b"")
                for each in self._shown(batch)]  # fmt: skip
        text = f"{' '.join(seen) or 'nothing'} | "
        text += f"stable={answer.last_stable_offset} end={answer.high_watermark}"
        aborted = [
            f"{self._name_of(each.producer_id)}@{each.first_offset}"
            for each in answer.aborted_transactions or ()
        ]
        return text + (f" aborted={','.join(aborted)}" if aborted else "")

    def _ends(self, talker: Talker, line: Line) -> str:
        ((topic, index), _) = line.places[0]
        time_ms = _TIMES[line.options.get("at", "end")]
        found = []
        for isolation in (1, 0):
            wanted = ListOffsetsPartition(partition_index=index, timestamp=time_ms)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=self._topic(topic), partitions=[wanted])],
            )
            (answer,) = talker.wire.ask(request, 7).topics[0].partitions
            code = answer.error_code
            found.append(ErrorCode(code).name if code else answer.offset)
        return f"committed={found[0]} all={found[1]}"

    def _deletes(self, talker: Talker, line: Line) -> str:
        ((topic, index), before) = line.places[0]
        wanted = DeleteRecordsPartition(partition_index=index, offset=int(before))
        request = DeleteRecordsRequest(
            timeout_ms=30_000,
            topics=[DeleteRecordsTopic(name=self._topic(topic), partitions=[wanted])],
        )
        (answer,) = talker.wire.ask(request, 2).topics[0].partitions
        return f"{ErrorCode(answer.error_code).name} start={answer.low_watermark}"

    def _looks(self, talker: Talker, line: Line) -> str:
        ((topic, index), _) = line.places[0]
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=self._topic(topic), partition_indexes=[index])]
        )
        (answer,) = talker.wire.ask(request, 0).topics[0].partitions
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        seen = sorted(
            f"{self._name_of(each.producer_id)} epoch={each.producer_epoch} "
            f"sequence={each.last_sequence} open={each.current_txn_start_offset} "
            f"coordinator={each.coordinator_epoch} "
            f"{'wrote' if each.last_timestamp == TIME_MS else 'ended'} last"
            for each in answer.active_producers
        )
        return ", ".join(seen) or "nobody"

    def _shown(self, batch: RecordBatch) -> Iterator[str]:
        if not batch.is_control:
            for record in batch.records():
                yield (record.value or b"").decode()
            return
        marker = marker_of(batch)
        assert marker is not None
        sign = "+" if marker.control_type is ControlType.COMMIT else "-"
        yield sign + self._name_of(batch.producer_id)

    # Parts of lines

    def _talker(self, name: str) -> Talker:
        if name not in self._talkers:
            wire = WireClient(self._address, client_id=name)
            self._talkers[name] = Talker(name, wire, fresh_name(name))
        return self._talkers[name]

    def _name_of(self, producer_id: int) -> str:
        owners = [t.name for t in self._talkers.values() if t.producer_id == producer_id]
        return owners[0] if owners else "?"

    def _topic(self, name: str) -> str:
        if name.startswith("__") or name == "absent":
            return name
        if name not in self._topics:
            self._topics[name] = fresh_name(name)
            settings = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
            made = create_topic(self._address, self._topics[name], PARTITIONS, settings)
            self._topic_ids[name] = made
            # Leaders are announced before they lead.
            wait_for(lambda: self._is_led(name), f"{name} to be led")
        return self._topics[name]

    def _is_led(self, topic: str) -> bool:
        lines = [f"wait ends {topic}-{index}" for index in range(PARTITIONS)]
        return all(self.say(line).endswith("committed=0 all=0") for line in lines)

    def _id(self, talker: Talker, line: Line) -> str | None:
        whose = line.options.get("id", talker.name)
        names = {"none": None, "empty": ""}
        return names[whose] if whose in names else self._talker(whose).transactional_id

    def _producer_id(self, talker: Talker, line: Line) -> int:
        whose = line.options.get("pid", talker.name)
        if whose == "none":
            return NO_PRODUCER_ID
        return int(whose) if whose.isdigit() else self._talker(whose).producer_id

    @staticmethod
    def _epoch(talker: Talker, line: Line) -> int:
        given = line.options.get("epoch")
        if given is None:
            return talker.epoch
        return talker.epoch + int(given) if given[0] in "+-" else int(given)

    @staticmethod
    def _ask(talker: Talker, request: Message, version: int) -> Any:
        """Repeats the request while another change of the transaction is in progress, as clients
        do.
        """
        for _ in range(ASKED_AGAIN_MAX):
            answer = talker.wire.ask(request, version)
            if not _BUSY & set(_codes(answer)):
                return answer
            pause()
        raise AssertionError(f"{talker.name} must wait forever")


def _codes(answer: Any) -> Iterator[ErrorCode]:
    if hasattr(answer, "responses"):
        for topic in answer.responses:
            yield from (ErrorCode(each.error_code) for each in topic.partition_responses)
    elif hasattr(answer, "results_by_topic_v3_and_below"):
        for topic in answer.results_by_topic_v3_and_below:
            yield from (ErrorCode(e.partition_error_code) for e in topic.results_by_partition)
    else:
        yield ErrorCode(answer.error_code)


def _joined(results: Iterable[tuple[Place, str]]) -> str:
    return " ".join(f"{topic}-{index}={text}" for (topic, index), text in results)


def _batch(values: list[str], **options: Any) -> bytes:
    records = [Record(i, TIME_MS, None, value.encode()) for i, value in enumerate(values)]
    return build_batch(records, BatchOptions(base_offset=0, **options))


def talk(address: str, path: Path) -> tuple[list[str], list[str]]:
    """The expected text after the dashes, and the actual one."""
    conversation = Conversation(address)
    expected: list[str] = []
    heard: list[str] = []
    try:
        for block in path.read_text(encoding="utf-8").split("\n\n"):
            lines = [line for line in block.splitlines() if line and not line.startswith("#")]
            if not lines:
                continue
            said, answers = lines[: lines.index(DASHES)], lines[lines.index(DASHES) + 1 :]
            heard += [conversation.say(line) for line in said]
            expected += answers
    finally:
        conversation.close()
    return expected, heard


def wait_for_coordinator(address: str) -> None:
    """When asked for a coordinator, a new cluster first creates the internal topic of
    transactions.
    """
    with WireClient(address) as client:
        for number in range(20):
            keys = FindCoordinatorRequest(
                key_type=TRANSACTIONS, coordinator_keys=[f"warm-up-{number}"]
            )
            while client.ask(keys, 4).coordinators[0].error_code:
                pause()
            init = InitProducerIdRequest(
                transactional_id=f"warm-up-{number}", transaction_timeout_ms=1000
            )
            while client.ask(init, 4).error_code:
                pause()
