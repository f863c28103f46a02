"""The producer id and epoch, by which brokers recognize duplicates."""

from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import check
from moldau.core.producer.partition_queue import ProducerIdentity
from moldau.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from moldau.types import INT32_MAX, ProducerEpoch

NO_TRANSACTION_MS = INT32_MAX


async def request_identity(cluster: Cluster) -> ProducerIdentity:
    """Requests an identity without transactions, from any broker."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_MS)
    answer = await cluster.send(None, request, InitProducerIdResponse)
    check(answer.error_code, "no producer id")
    return ProducerIdentity(answer.producer_id, ProducerEpoch(answer.producer_epoch))
