"""DescribeTransactions (version 0): the state of transactional ids. An id that is named several
times is answered once; Kafka repeats it, however many partitions it has.
"""

from collections.abc import Awaitable
from functools import partial

from moldau.broker.server.context import RequestContext
from moldau.core.transactions.listing import describe_transaction
from moldau.core.transactions.states import TransactionState
from moldau.net.slices import once_in_slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from moldau.protocol.messages.describe_transactions import TransactionState as DescribedState


def handle_describe_transactions(
    ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Awaitable[DescribeTransactionsResponse]:
    return once_in_slices(
        partial(_described, ctx),
        request.transactional_ids,
        str,
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


def _described(ctx: RequestContext, transactional_id: str) -> DescribedState:
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    try:
        if transactional_id:
            shard = ctx.broker.transactions.shard_of(transactional_id)
            transaction = shard.transactions.get(transactional_id)
            if transaction is not None and transaction.state is not TransactionState.DEAD:
                return describe_transaction(transaction)
        else:
            code = ErrorCode.INVALID_REQUEST
    except KafkaError as error:
        code = error.code
    return DescribedState(transactional_id=transactional_id, error_code=code)
