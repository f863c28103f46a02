"""Features of the cluster: the levels that brokers support, and those that are finalized."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import ClientError, check
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

# The first version that says how a level may be lowered, and has one error for all features.
_UPGRADE_TYPE_VERSION = 1


class LevelRange(NamedTuple):
    """Levels of a feature, both ends included."""

    oldest: int
    newest: int


class DescribedFeatures(NamedTuple):
    """The result of `Admin.describe_features`."""

    supported: dict[str, LevelRange]
    finalized: dict[str, LevelRange]
    epoch: int
    """The epoch of the finalized features; -1 if there are none."""


class UpgradeType(IntEnum):
    """Whether the level of a feature may be lowered, and metadata lost with it."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A new level of a feature."""

    level: int
    """0 removes the feature."""
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


async def describe_features(cluster: Cluster, node_id: int | None = None) -> DescribedFeatures:
    """The features as one broker reports them."""
    # Levels change, so the versions that the connection requested when it was opened may be old.
    served = await (await cluster.connection(node_id)).request_versions()
    return DescribedFeatures(
        {
            feature.name: LevelRange(feature.min_version, feature.max_version)
            for feature in served.supported_features
        },
        {
            feature.name: LevelRange(feature.min_version_level, feature.max_version_level)
            for feature in served.finalized_features
        },
        served.finalized_features_epoch,
    )


async def update_features(
    cluster: Cluster, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
) -> dict[str, KafkaError | None]:
    """Changes the levels of features; brokers since 4.0 change all of them or none."""
    if not updates:
        raise ClientError("give at least one feature")
    request = UpdateFeaturesRequest(
        timeout_ms=cluster.settings.request_timeout_ms,
        feature_updates=[
            FeatureUpdateKey(
                feature=name, max_version_level=update.level, upgrade_type=update.upgrade_type
            )
            for name, update in updates.items()
        ],
        validate_only=validate_only,
    )
    answer = await cluster.send_to_controller(
        request, UpdateFeaturesResponse, oldest=_UPGRADE_TYPE_VERSION
    )
    done: dict[str, KafkaError | None] = dict.fromkeys(updates)
    for row in answer.results:
        if row.error_code:
            done[row.feature] = KafkaError(error_code(row.error_code), row.error_message or "")
    if answer.error_code != ErrorCode.NONE and not any(done.values()):
        check(answer.error_code, answer.error_message)
    return done
