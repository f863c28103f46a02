"""Brokers and controllers that join and leave: BrokerRegistration, UnregisterBroker,
ControllerRegistration.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from moldau.core.controller.decision_context import (
    RECORDS_PER_REQUEST_MAX,
    DecisionContext,
    is_reserved,
    too_many_records,
)
from moldau.core.controller.partitions.leadership import restart_records, unregister_records
from moldau.core.decision import Decision
from moldau.core.metadata.image import KRAFT_VERSION, METADATA_VERSION, BrokerImage
from moldau.core.metadata.levels import CONTROLLER_REGISTRATION_FROM
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import RegisterBrokerRecord, RegisterControllerRecord
from moldau.protocol.log_records.register_broker_record import BrokerEndpoint, BrokerFeature
from moldau.protocol.log_records.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
)
from moldau.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from moldau.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from moldau.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId, Uuid, uuid_text

_CLEAN_STOP_KNOWN_FROM = 3
"""The first version of the request that carries the epoch of the broker's last clean stop."""
_SECURITY_PROTOCOLS = range(4)


def decide_register_broker(
    context: DecisionContext, request: BrokerRegistrationRequest, version: int
) -> Decision[Message, BrokerRegistrationResponse]:
    _check_identity(context, request)
    if context.has_directories:
        _check_directories(context, BrokerId(request.broker_id), request.log_dirs)
    _check_listeners(request.listeners)
    _check_features(context, request)
    record = _register_broker_record(request)
    if context.has_directories:
        record.log_dirs = list(request.log_dirs)
    before = context.image.brokers.get(request.broker_id)
    records: list[Message] = []
    if before is not None and before.incarnation_id == request.incarnation_id:
        # The same incarnation amends its registration.
        record.fenced = before.is_fenced
        record.in_controlled_shutdown = before.in_controlled_shutdown
        record.broker_epoch = before.epoch
    else:
        was_clean = _stopped_cleanly(before, request, version)
        records += restart_records(context, BrokerId(request.broker_id), was_clean=was_clean)
        # Unique, and higher than every epoch before: only registrations take an offset as theirs,
        # and none is appended between a decision and its records.
        record.broker_epoch = context.next_offset
    # Last, so the batch need not be atomic: if it is lost, the broker registers again.
    records.append(record)
    response = BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
    return Decision(response, records, is_atomic=False)


def decide_unregister_broker(
    context: DecisionContext, request: UnregisterBrokerRequest, _version: int
) -> Decision[Message, UnregisterBrokerResponse]:
    broker = context.image.brokers.get(request.broker_id)
    if broker is None:
        detail = f"Broker ID {request.broker_id} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, detail)
    # No more than it takes to refuse them.
    records = list(islice(unregister_records(context, broker), RECORDS_PER_REQUEST_MAX + 1))
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    return Decision(UnregisterBrokerResponse(error_message=None), records, is_atomic=False)


def decide_register_controller(
    context: DecisionContext, request: ControllerRegistrationRequest, _version: int
) -> Decision[Message, ControllerRegistrationResponse]:
    if context.level < CONTROLLER_REGISTRATION_FROM:
        detail = "The current MetadataVersion is too old to support controller registrations."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)
    _check_listeners(request.listeners)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            ControllerEndpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in request.listeners
        ],
        features=[
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
    return Decision(ControllerRegistrationResponse(error_message=None), [record])


def _check_identity(context: DecisionContext, request: BrokerRegistrationRequest) -> None:
    if request.cluster_id != context.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {context.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    before = context.image.brokers.get(request.broker_id)
    if (
        before is not None
        and before.incarnation_id != request.incarnation_id
        and context.sessions.is_valid(before.broker_id, before.epoch, context.now_ms)
    ):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently "
            "restarted this should self-resolve once the heartbeat manager expires the broker's "
            "session.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Controller does not support registering ZK brokers.",
        )


def _check_directories(
    context: DecisionContext, broker_id: BrokerId, directories: list[Uuid]
) -> None:
    if not directories:
        raise _invalid("No directories specified in request")
    if any(is_reserved(directory) for directory in directories):
        raise _invalid("Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        raise _invalid("Duplicate directory ID in request")
    for other in context.image.brokers.values():
        shared = set(other.log_directories) & set(directories)
        if other.broker_id != broker_id and shared:
            raise _invalid(
                f"Broker {other.broker_id} is already registered with directory "
                f"{uuid_text(shared.pop())}"
            )


class _Listener(Protocol):
    name: str
    security_protocol: int


def _check_listeners(listeners: Sequence[_Listener]) -> None:
    for listener in listeners:
        if listener.security_protocol not in _SECURITY_PROTOCOLS:
            raise _invalid(
                f"Unknown security protocol {listener.security_protocol} in listener "
                f"{listener.name}"
            )


def _check_features(context: DecisionContext, request: BrokerRegistrationRequest) -> None:
    """The broker must support every finalized feature level."""
    finalized = {**context.image.features, KRAFT_VERSION: context.kraft_version}
    supported = {
        each.name: (each.min_supported_version, each.max_supported_version)
        for each in request.features
    }
    if METADATA_VERSION not in supported:
        raise _invalid(f"Request features do not contain '{METADATA_VERSION}'")
    for name in {**supported, **finalized}:
        lowest, highest = supported.get(name, (0, 0))
        level = finalized.get(name, 0)
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} "
                f"of {name}. The broker wants a version between {lowest} and {highest}, inclusive.",
            )


def _register_broker_record(request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[
            BrokerEndpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in request.listeners
        ],
        features=[
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )


def _stopped_cleanly(
    before: BrokerImage | None, request: BrokerRegistrationRequest, version: int
) -> bool:
    if before is None or version < _CLEAN_STOP_KNOWN_FROM:
        return False
    return request.previous_broker_epoch == before.epoch


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, detail)
