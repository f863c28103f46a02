"""Changes of brokers and controllers within a delta."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from moldau.core.metadata.draft import Draft
from moldau.core.metadata.image import BrokerImage, ControllerImage, Endpoint, MetadataImage
from moldau.core.metadata.replay_errors import MetadataReplayError
from moldau.types import BrokerId, Uuid

if TYPE_CHECKING:
    from moldau.protocol.log_records import (
        BrokerRegistrationChangeRecord,
        FenceBrokerRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        UnfenceBrokerRecord,
        UnregisterBrokerRecord,
    )

# Values of BrokerRegistrationChangeRecord.fenced; in_controlled_shutdown is 0 or 1.
UNFENCED = -1
UNCHANGED = 0
FENCED = 1
IN_CONTROLLED_SHUTDOWN = 1

_FENCED_AFTER = {UNFENCED: False, FENCED: True}


class ClusterChanges:
    def __init__(self, image: MetadataImage) -> None:
        self.brokers = Draft(image.brokers)
        self.controllers = Draft(image.controllers)

    def replay_register_broker(self, record: "RegisterBrokerRecord") -> None:
        self.brokers.put(record.broker_id, broker_of(record))

    def replay_unregister_broker(self, record: "UnregisterBrokerRecord") -> None:
        self.brokers.drop(record.broker_id)

    def replay_fence(self, record: "FenceBrokerRecord") -> None:
        broker = self._broker(BrokerId(record.id), record.epoch)
        self._replace(broker, replace(broker, is_fenced=True))

    def replay_unfence(self, record: "UnfenceBrokerRecord") -> None:
        broker = self._broker(BrokerId(record.id), record.epoch)
        self._replace(broker, replace(broker, is_fenced=False))

    def replay_registration_change(self, record: "BrokerRegistrationChangeRecord") -> None:
        broker = self._broker(BrokerId(record.broker_id), record.broker_epoch)
        if record.fenced not in {UNFENCED, UNCHANGED, FENCED}:
            raise MetadataReplayError(f"broker {broker.broker_id}: fenced={record.fenced}")
        if record.in_controlled_shutdown not in {UNCHANGED, IN_CONTROLLED_SHUTDOWN}:
            raise MetadataReplayError(
                f"broker {broker.broker_id}: in_controlled_shutdown={record.in_controlled_shutdown}"
            )
        cordoned = record.cordoned_log_dirs
        changed = replace(
            broker,
            is_fenced=_FENCED_AFTER.get(record.fenced, broker.is_fenced),
            in_controlled_shutdown=(
                broker.in_controlled_shutdown
                or record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN
            ),
            log_directories=(
                sorted_directories(record.log_dirs) if record.log_dirs else broker.log_directories
            ),
            cordoned_log_directories=(
                broker.cordoned_log_directories if cordoned is None else tuple(cordoned)
            ),
        )
        self._replace(broker, changed)

    def replay_register_controller(self, record: "RegisterControllerRecord") -> None:
        self.controllers.put(record.controller_id, controller_of(record))

    def _broker(self, broker_id: BrokerId, epoch: int) -> BrokerImage:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise MetadataReplayError(
                f"broker {broker_id} is changed by a record, but is not registered"
            )
        if broker.epoch != epoch:
            raise MetadataReplayError(
                f"broker {broker_id} is changed in epoch {epoch}, but is in epoch {broker.epoch}"
            )
        return broker

    def _replace(self, before: BrokerImage, after: BrokerImage) -> None:
        if after != before:
            self.brokers.put(after.broker_id, after)


class _EndpointFields(Protocol):
    name: str
    host: str
    port: int
    security_protocol: int


class _FeatureFields(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


def broker_of(record: "RegisterBrokerRecord") -> BrokerImage:
    cordoned = record.cordoned_log_dirs
    return BrokerImage(
        broker_id=BrokerId(record.broker_id),
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=_endpoints(record.end_points),
        features=_features(record.features),
        rack=record.rack,
        is_fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        is_migrating_zk_broker=record.is_migrating_zk_broker,
        log_directories=sorted_directories(record.log_dirs),
        cordoned_log_directories=None if cordoned is None else tuple(cordoned),
    )


def controller_of(record: "RegisterControllerRecord") -> ControllerImage:
    return ControllerImage(
        controller_id=BrokerId(record.controller_id),
        incarnation_id=record.incarnation_id,
        endpoints=_endpoints(record.end_points),
        features=_features(record.features),
        zk_migration_ready=record.zk_migration_ready,
    )


def sorted_directories(directories: Iterable[Uuid]) -> tuple[Uuid, ...]:
    """Kafka's order, which compares a UUID as two signed numbers."""
    return tuple(sorted(directories, key=_signed_halves))


def _signed_halves(uuid: Uuid) -> tuple[int, int]:
    return (
        int.from_bytes(uuid[:8], "big", signed=True),
        int.from_bytes(uuid[8:], "big", signed=True),
    )


def _endpoints(endpoints: Sequence[_EndpointFields]) -> dict[str, Endpoint]:
    return {
        each.name: Endpoint(each.name, each.host, each.port, each.security_protocol)
        for each in endpoints
    }


def _features(features: Sequence[_FeatureFields]) -> dict[str, tuple[int, int]]:
    return {
        each.name: (each.min_supported_version, each.max_supported_version) for each in features
    }
