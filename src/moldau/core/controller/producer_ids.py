"""AllocateProducerIds: brokers get producer ids in blocks, which takes one log record per block."""

from moldau.core.controller.decision_context import DecisionContext
from moldau.core.decision import Decision
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import ProducerIdsRecord
from moldau.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from moldau.protocol.wire.schema import Message
from moldau.types import INT64_MAX, BrokerId

BLOCK_SIZE = 1000
_LAST_ID = INT64_MAX


def decide_allocate_producer_ids(
    context: DecisionContext, request: AllocateProducerIdsRequest, _version: int
) -> Decision[Message, AllocateProducerIdsResponse]:
    context.check_broker_epoch(BrokerId(request.broker_id), request.broker_epoch)
    first = context.image.next_producer_id
    if first > _LAST_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return Decision(response, [record])
