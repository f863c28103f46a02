"""Fences a broker whose session has expired: it sent no heartbeat within
`broker.session.timeout.ms`. `sessions.py` knows when that is.
"""

from moldau.core.controller.decision_context import DecisionContext
from moldau.core.controller.partitions.leadership import fence_records
from moldau.core.decision import Decision
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId


def decide_fence_stale_broker(
    context: DecisionContext,
) -> Decision[Message, tuple[BrokerId, int] | None]:
    """Fences one broker at a time, so that the next decision sees this one's result. The answer is
    the session that expired, even if the broker has a newer one.
    """
    expired = context.sessions.first_expired(context.now_ms)
    if expired is None:
        return Decision(None)
    broker_id, broker_epoch = expired
    broker = context.image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch or broker.is_fenced:
        return Decision(expired)
    return Decision(expired, fence_records(context, broker), is_atomic=False)
