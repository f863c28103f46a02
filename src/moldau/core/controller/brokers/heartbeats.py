"""BrokerHeartbeat: a broker reports that it is alive, and the state that it wants.

| state | request | next state |
|---|---|---|
| fenced | shut down | shut down now |
| fenced | unfence, and has read its registration | unfenced |
| unfenced | fence (and shut down) | fenced (shut down now) |
| unfenced | shut down, and leads nothing | shut down now |
| unfenced | shut down, and leads | in controlled shutdown |
| in controlled shutdown | any, leads nothing, and all active brokers know that | shut down now |
"""

from collections.abc import Callable
from enum import Enum, auto

from moldau.core.controller.decision_context import DecisionContext
from moldau.core.controller.partitions.leadership import (
    controlled_shutdown_records,
    fence_records,
    leads_any,
    offline_directory_records,
    unfence_records,
)
from moldau.core.decision import Decision
from moldau.core.metadata.image import BrokerImage
from moldau.core.metadata.levels import CORDONED_DIRECTORIES_FROM
from moldau.protocol.log_records import BrokerRegistrationChangeRecord
from moldau.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId


class BrokerState(Enum):
    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


_RECORDS: dict[BrokerState, Callable[[DecisionContext, BrokerImage], list[Message]]] = {
    BrokerState.FENCED: fence_records,
    BrokerState.SHUTDOWN_NOW: fence_records,
    BrokerState.UNFENCED: unfence_records,
    BrokerState.CONTROLLED_SHUTDOWN: controlled_shutdown_records,
}


def decide_heartbeat(
    context: DecisionContext, request: BrokerHeartbeatRequest, _version: int
) -> Decision[Message, BrokerHeartbeatResponse]:
    broker = context.check_broker_epoch(BrokerId(request.broker_id), request.broker_epoch)
    now, after = _state(context, broker), _next_state(context, broker, request)
    records = _RECORDS[after](context, broker) if after is not now else []
    if context.has_directories:
        records += offline_directory_records(context, broker, request.offline_log_dirs)
    if context.level >= CORDONED_DIRECTORIES_FROM:
        records += _cordoned_directory_records(broker, request)
    offset = context.sessions.registration_offset(BrokerId(request.broker_id))
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= offset,
        is_fenced=after in {BrokerState.FENCED, BrokerState.SHUTDOWN_NOW},
        should_shut_down=after is BrokerState.SHUTDOWN_NOW,
    )
    return Decision(response, records, is_atomic=False)


def changes_state(context: DecisionContext, request: BrokerHeartbeatRequest) -> bool:
    """Whether the broker's partitions may get other leaders or in-sync replicas."""
    broker = context.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return False
    fails = not set(broker.log_directories).isdisjoint(request.offline_log_dirs)
    return fails or _next_state(context, broker, request) is not _state(context, broker)


def _state(context: DecisionContext, broker: BrokerImage) -> BrokerState:
    if context.sessions.shutdown_offset(broker.broker_id) is not None:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.FENCED if broker.is_fenced else BrokerState.UNFENCED


def _next_state(
    context: DecisionContext, broker: BrokerImage, request: BrokerHeartbeatRequest
) -> BrokerState:
    now = _state(context, broker)
    if now is BrokerState.FENCED:
        if request.want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        offset = context.sessions.registration_offset(broker.broker_id)
        is_ready = not request.want_fence and request.current_metadata_offset >= offset
        return BrokerState.UNFENCED if is_ready else BrokerState.FENCED
    if now is BrokerState.UNFENCED:
        if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        if not request.want_shut_down:
            return BrokerState.UNFENCED
        leads = leads_any(context, broker.broker_id)
        return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
    if leads_any(context, broker.broker_id) or not _all_know_of_shutdown(context, broker):
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.SHUTDOWN_NOW


def _all_know_of_shutdown(context: DecisionContext, leaving: BrokerImage) -> bool:
    """Whether every active broker has read the new leaders."""
    offset = context.sessions.shutdown_offset(leaving.broker_id)
    assert offset is not None
    return all(
        context.sessions.metadata_offset(broker.broker_id) >= offset
        for broker in context.image.brokers.values()
        if not broker.is_fenced and context.sessions.shutdown_offset(broker.broker_id) is None
    )


def _cordoned_directory_records(
    broker: BrokerImage, request: BrokerHeartbeatRequest
) -> list[Message]:
    # None until the broker has caught up with its settings.
    cordoned = request.cordoned_log_dirs
    known = broker.cordoned_log_directories
    if cordoned is None or (known is not None and set(known) == set(cordoned)):
        return []
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
    )
    return [change]
