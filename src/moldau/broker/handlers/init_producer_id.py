"""InitProducerId (versions 0 to 5): an id for an idempotent producer.

Not served: transactions. A request with a transactional id is refused with UNSUPPORTED_VERSION,
which no client retries: the Java client, librdkafka and kafka-python fail with it at once.
"""

from moldau.broker.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


async def handle_init_producer_id(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    try:
        _check(request)
        producer_id = await ctx.broker.producer_ids.next()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check(request: InitProducerIdRequest) -> None:
    has_id = request.producer_id != NO_PRODUCER_ID
    if has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id without an epoch, or reversed")
    if request.transactional_id is None:
        return
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "transactions are not served by this node")
