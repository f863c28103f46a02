"""The features and levels that this release supports, and UpdateFeatures."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from moldau.core.controller.decision_context import ELIGIBLE_LEADER_REPLICAS, DecisionContext
from moldau.core.controller.topics.topic_settings import MIN_INSYNC_REPLICAS
from moldau.core.decision import Decision
from moldau.core.metadata.image import KRAFT_VERSION, METADATA_VERSION
from moldau.core.metadata.levels import (
    CONTROLLER_REGISTRATION_FROM,
    LATEST_RELEASED_LEVEL,
    NEWEST_LEVEL,
    OLDEST_LEVEL,
)
from moldau.protocol.enums import FEATURES, METADATA_VERSIONS, ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import ConfigRecord, FeatureLevelRecord, NoOpRecord
from moldau.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from moldau.protocol.wire.schema import Message

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

Ranges = Mapping[str, tuple[int, int]]

SUPPORTED_FEATURES: Ranges = {
    METADATA_VERSION: (OLDEST_LEVEL, LATEST_RELEASED_LEVEL),
    **{name: (levels[0].level, levels[-1].level) for name, levels in FEATURES.items()},
}
"""Lowest and highest level by name. Every broker and controller of this release registers them."""
_WITH_UNSTABLE: Ranges = {**SUPPORTED_FEATURES, METADATA_VERSION: (OLDEST_LEVEL, NEWEST_LEVEL)}


def supported_features(config: "BrokerConfig") -> Ranges:
    """The levels that a node with these settings supports; unstable ones only if enabled."""
    return _WITH_UNSTABLE if config.unstable_feature_versions_enable else SUPPORTED_FEATURES


_RESULTS_UNTIL = 1
"""The last version whose response has a result for each feature."""


class UpgradeType(IntEnum):
    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def decide_update_features(
    context: DecisionContext, request: UpdateFeaturesRequest, version: int
) -> Decision[Message, UpdateFeaturesResponse]:
    updates = {update.feature: update for update in request.feature_updates}
    proposed = {**context.image.features}
    proposed |= {name: update.max_version_level for name, update in updates.items()}
    records: list[Message] = []
    try:
        for update in updates.values():
            records += _update(context, update, proposed)
    except KafkaError as error:
        return Decision(_refusal(error))
    if proposed.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0 and ELIGIBLE_LEADER_REPLICAS in updates:
        records = [*_eligible_replicas_records(context), *records]
    response = UpdateFeaturesResponse(error_message=None)
    if version <= _RESULTS_UNTIL:
        response.results = [
            # Kafka's message for the absence of an error.
            UpdatableFeatureResult(feature=update.feature, error_message="NONE")
            for update in request.feature_updates
        ]
    if request.validate_only:
        return Decision(response)
    level = proposed.get(KRAFT_VERSION, 0)
    raised = level if level > context.kraft_version else None
    return Decision(response, records, kraft_version=raised)


def _refusal(error: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=error.code,
        error_message="The update failed for all features since the following feature had an "
        f"error: {error.detail}",
    )


def _update(
    context: DecisionContext, update: FeatureUpdateKey, proposed: Mapping[str, int]
) -> list[Message]:
    name, level = update.feature, update.max_version_level
    kind = _upgrade_type(update)
    current = _current_level(context, name)
    if kind is UpgradeType.UNKNOWN:
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    reason = next(_reasons_against(context, name, level), None)
    if reason is not None:
        raise _invalid(update, reason)
    if level < current and kind is UpgradeType.UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if level > current and kind is not UpgradeType.UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        return _metadata_version_records(current, level, kind)
    if name == KRAFT_VERSION:
        return _kraft_version_records(update, current, kind)
    _check_needs(update, proposed)
    return [FeatureLevelRecord(name=name, feature_level=level)]


def _upgrade_type(update: FeatureUpdateKey) -> UpgradeType:
    """Version 0 has another field for this, which Kafka's controllers ignore."""
    known = set(UpgradeType)
    return UpgradeType(update.upgrade_type) if update.upgrade_type in known else UpgradeType.UNKNOWN


def _current_level(context: DecisionContext, name: str) -> int:
    if name == KRAFT_VERSION:
        return context.kraft_version
    return context.image.features.get(name, 0)


def _reasons_against(context: DecisionContext, name: str, level: int) -> Iterator[str]:
    node_id = context.config.node_id
    supported = supported_features(context.config)
    yield from _not_in(supported, name, level, f"Local controller {node_id}")
    for broker in context.image.brokers.values():
        yield from _not_in(broker.features, name, level, f"Broker {broker.broker_id}")
    if context.level < CONTROLLER_REGISTRATION_FROM:
        return
    for controller in context.image.controllers.values():
        if controller.controller_id != node_id:
            node = f"Controller {controller.controller_id}"
            yield from _not_in(controller.features, name, level, node)


def _not_in(supported: Ranges, name: str, level: int, node: str) -> Iterator[str]:
    lowest, highest = supported.get(name, (0, 0))
    if lowest <= level <= highest:
        return
    if highest == 0:
        yield f"{node} does not support this feature."
    elif lowest == highest:
        yield f"{node} only supports versions {lowest}"
    else:
        yield f"{node} only supports versions {lowest}-{highest}"


def _metadata_version_records(current: int, level: int, kind: UpgradeType) -> list[Message]:
    between = (v for v in METADATA_VERSIONS if level < v.level <= current)
    if any(version.record_format_changed for version in between):
        reason = (
            "Unsafe metadata downgrade is not supported in this version."
            if kind is UpgradeType.UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
        )
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
        )
    return [FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)]


def _kraft_version_records(
    update: FeatureUpdateKey, current: int, kind: UpgradeType
) -> list[Message]:
    """The quorum stores this level in its own control records. The NoOp record gives the response
    an offset to wait for.
    """
    if update.max_version_level < current:
        raise _invalid(update, "Can't downgrade the version of this feature.")
    return [NoOpRecord()] if kind is UpgradeType.UPGRADE else []


def _check_needs(update: FeatureUpdateKey, proposed: Mapping[str, int]) -> None:
    name, level = update.feature, update.max_version_level
    if name not in FEATURES:
        raise _invalid(update, f"Feature {name} not found.")
    for known in FEATURES[name]:
        for needed, needed_level in known.needs if known.level == level else ():
            if proposed.get(needed, 0) < needed_level:
                raise _invalid(
                    update,
                    f"{name} could not be set to {level} because it depends on {needed} level "
                    f"{needed_level}",
                )


def _eligible_replicas_records(context: DecisionContext) -> Iterator[Message]:
    """Sets a cluster-wide min.insync.replicas and removes every broker's own value: eligible leader
    replicas need the same one on all brokers.
    """
    if MIN_INSYNC_REPLICAS not in context.image.config_of(ConfigResourceType.BROKER, ""):
        yield ConfigRecord(
            resource_type=ConfigResourceType.BROKER,
            resource_name="",
            name=MIN_INSYNC_REPLICAS,
            value=str(context.config.min_insync_replicas),
        )
    for resource, values in context.image.configs.items():
        is_broker = resource.kind is ConfigResourceType.BROKER and resource.name != ""
        if is_broker and MIN_INSYNC_REPLICAS in values:
            yield ConfigRecord(
                resource_type=ConfigResourceType.BROKER,
                resource_name=resource.name,
                name=MIN_INSYNC_REPLICAS,
                value=None,
            )


def _invalid(update: FeatureUpdateKey, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}",
    )
