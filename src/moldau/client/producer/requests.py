"""Produce requests from batches, the outcome of each batch from the response, and the request for a
producer id.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import Broker, Topic
from moldau.client.errors import check
from moldau.core.producer.partition_queue import Outgoing, ProducerIdentity
from moldau.core.producer.sending import Sending
from moldau.net.request_channel import Address
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.types import INT32_MAX, ZERO_UUID, ProducerEpoch, Uuid

NO_TRANSACTION_MS = INT32_MAX


class ProduceTerms(NamedTuple):
    acks: int
    timeout_ms: int
    transactional_id: str | None


# Brokers send messages only for errors of records and transactions.
_MESSAGES = {
    ErrorCode.CORRUPT_MESSAGE: "the batch was damaged on its way to the broker",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "the broker has written this batch before",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has taken this one's place",
    ErrorCode.INVALID_RECORD: "the broker finds the batch malformed",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or all",
    ErrorCode.INVALID_TIMESTAMP: "a record's time is too far from the broker's",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic is internal, or its name is not valid",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk fails; its log says how",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than the topic's max.message.bytes",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but by fewer replicas than "
    "min.insync.replicas",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the broker does not lead the partition",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a batch before this one is missing",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than a segment of the topic",
    ErrorCode.REQUEST_TIMED_OUT: "not committed in time; that may still happen",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not write to the topic",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user may not use the transactional id",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker has forgotten the producer",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the broker does not have the partition",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not know the codec",
}


class PartitionAnswer(NamedTuple):
    outgoing: Outgoing
    code: ErrorCode
    base_offset: int = -1
    append_time_ms: int = -1
    detail: str = ""
    record_errors: Mapping[int, str] = {}
    leader: int = -1
    leader_epoch: int = -1

    @property
    def error(self) -> KafkaError:
        batch = self.outgoing.batch
        partition = f"{batch.topic}-{batch.partition}"
        detail = self.detail or _MESSAGES.get(self.code)
        return KafkaError(self.code, f"{partition}: {detail}" if detail else partition)


def produce_request(
    batches: Iterable[Outgoing], topics: Mapping[str, Topic], sending: Sending, terms: ProduceTerms
) -> ProduceRequest:
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for outgoing in batches:
        data = PartitionProduceData(
            index=outgoing.batch.partition, records=sending.content_of(outgoing)
        )
        by_topic.setdefault(outgoing.batch.topic, []).append(data)
    return ProduceRequest(
        transactional_id=terms.transactional_id,
        acks=terms.acks,
        timeout_ms=terms.timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name, topic_id=_id_of(topics.get(name)), partition_data=partitions
            )
            for name, partitions in by_topic.items()
        ],
    )


def _id_of(topic: Topic | None) -> Uuid:
    return ZERO_UUID if topic is None else topic.topic_id


def read_answer(
    batches: Iterable[Outgoing], answer: ProduceResponse, name_of: Callable[[Uuid], str | None]
) -> list[PartitionAnswer]:
    """One result for each batch; a batch that is missing in the response counts as unanswered."""
    rows = {
        (topic.name or name_of(topic.topic_id), row.index): row
        for topic in answer.responses
        for row in topic.partition_responses
    }
    found = []
    for outgoing in batches:
        row = rows.get((outgoing.batch.topic, outgoing.batch.partition))
        if row is None:
            missing = "the broker's response does not contain it"
            found.append(PartitionAnswer(outgoing, ErrorCode.NETWORK_EXCEPTION, detail=missing))
        else:
            found.append(_read_row(outgoing, row))
    return found


def endpoints_of(answer: object) -> list[Broker]:
    """The addresses of the leaders that a response names (KIP-951)."""
    if not isinstance(answer, ProduceResponse):
        return []
    return [
        Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
        for broker in answer.node_endpoints
    ]


def _read_row(outgoing: Outgoing, row: PartitionProduceResponse) -> PartitionAnswer:
    return PartitionAnswer(
        outgoing,
        error_code(row.error_code),
        row.base_offset,
        row.log_append_time_ms,
        row.error_message or "",
        {
            problem.batch_index: problem.batch_index_error_message or ""
            for problem in row.record_errors
        },
        row.current_leader.leader_id,
        row.current_leader.leader_epoch,
    )


async def request_identity(cluster: Cluster) -> ProducerIdentity:
    """Requests the producer id and epoch by which brokers recognize duplicates, from any broker.
    Transactions need another request.
    """
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_MS)
    answer = await cluster.send(None, request, InitProducerIdResponse)
    check(answer.error_code, "no producer id")
    return ProducerIdentity(answer.producer_id, ProducerEpoch(answer.producer_epoch))
