from collections.abc import Iterator
from typing import Any

import pytest
from core.controller.cluster import Cluster, registration, uuid_of

from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.broker_registration import Feature as BrokerFeature
from moldau.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE, UNSAFE = 1, 2, 3
GROUP = "group.version"
METADATA = "metadata.version"
ELIGIBLE = "eligible.leader.replicas.version"
MINIMUM = "min.insync.replicas"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.start(1)
    yield cluster
    cluster.check()


def update(
    cluster: Cluster, *updates: tuple[str, int, int], version: int = 2, validate: bool = False
) -> Any:
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in updates
    ]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate)
    return cluster.send(request, version)


def test_levels_go_up_and_down(cluster: Cluster) -> None:
    assert update(cluster, (GROUP, 1, UPGRADE), ("transaction.version", 2, UPGRADE)).error_code == 0
    assert cluster.image.features[GROUP] == 1
    assert cluster.image.features["transaction.version"] == 2
    assert update(cluster, (GROUP, 0, SAFE)).error_code == 0
    assert GROUP not in cluster.image.features


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        ((GROUP, 7, UPGRADE), "Local controller 100 only supports versions 0-1"),
        (("no.such", 1, UPGRADE), "Local controller 100 does not support this feature."),
        ((GROUP, -1, SAFE), "A feature version cannot be less than 0."),
        ((GROUP, 1, SAFE), "Can't downgrade to a newer version."),
        ((GROUP, 1, 9), "The controller does not support the given upgrade type."),
        ((METADATA, 29, UPGRADE), "Can't downgrade the version of this feature without"),
        ((METADATA, 31, UPGRADE), "only supports versions 7-30"),
        ((METADATA, 22, SAFE), "it might delete metadata information"),
        ((METADATA, 22, UNSAFE), "Unsafe metadata downgrade is not supported"),
        (("kraft.version", 0, SAFE), "Can't downgrade the version of this feature."),
    ],
)
def test_impossible_levels_are_refused(
    cluster: Cluster, requested: tuple[str, int, int], text: str
) -> None:
    before = len(cluster.log)
    response = (
        update(cluster, (GROUP, 1, UPGRADE), requested)
        if requested[0] != GROUP
        else update(cluster, requested)
    )
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert text in response.error_message
    assert len(cluster.log) == before


def test_metadata_version_goes_down_as_long_as_no_record_is_lost() -> None:
    cluster = Cluster(level=29)
    assert update(cluster, (METADATA, 24, SAFE)).error_code == 0
    assert cluster.image.features[METADATA] == 24
    assert update(cluster, (METADATA, 30, UPGRADE)).error_code == 0


def test_brokers_must_support_the_level(cluster: Cluster) -> None:
    broker = cluster.image.brokers[1]
    assert broker.features[GROUP] == (0, 1)
    limited = Cluster(level=29)
    limited.start(1)
    limited.image.brokers[1].features[METADATA]
    response = update(limited, (METADATA, 30, UPGRADE))
    assert response.error_code == 0


def test_dependencies_of_a_level_are_checked() -> None:
    cluster = Cluster(level=22, eligible_replicas=False)
    response = update(cluster, (ELIGIBLE, 1, UPGRADE))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"{ELIGIBLE} could not be set to 1 because it depends on" in response.error_message
    assert update(cluster, (METADATA, 30, UPGRADE), (ELIGIBLE, 1, UPGRADE)).error_code == 0


def test_eligible_leaders_fix_min_insync_replicas_for_all_brokers() -> None:
    cluster = Cluster(eligible_replicas=False)
    assert update(cluster, (ELIGIBLE, 1, UPGRADE)).error_code == 0
    assert cluster.image.config_of(ConfigResourceType.BROKER, "") == {"min.insync.replicas": "1"}
    cluster.check()


def test_older_responses_have_a_result_for_each_feature(cluster: Cluster) -> None:
    response = update(cluster, (GROUP, 1, UPGRADE), version=1)
    assert [(each.feature, each.error_code) for each in response.results] == [(GROUP, 0)]
    assert update(cluster, (GROUP, 1, UPGRADE)).results == []


def test_updates_can_be_validated_only(cluster: Cluster) -> None:
    before = len(cluster.log)
    assert update(cluster, (GROUP, 1, UPGRADE), validate=True).error_code == 0
    assert len(cluster.log) == before


def test_levels_that_are_not_final_need_permission(cluster: Cluster) -> None:
    refused = update(cluster, (METADATA, 31, UPGRADE))
    assert "Local controller 100 only supports versions 7-30" in refused.error_message
    permitted = Cluster({"unstable.feature.versions.enable": "true"})
    assert update(permitted, (METADATA, 31, UPGRADE)).error_code == 0
    assert permitted.image.metadata_version == 31
    beyond = update(permitted, (METADATA, 32, UPGRADE))
    assert "Local controller 100 only supports versions 7-31" in beyond.error_message


def test_the_quorum_of_static_voters_is_raised_with_other_features() -> None:
    cluster = Cluster(level=29, kraft_version=0)
    requested = (("kraft.version", 1, UPGRADE), (METADATA, 30, UPGRADE))
    assert update(cluster, *requested, validate=True).error_code == 0
    assert cluster.kraft_version == 0
    assert update(cluster, *requested).error_code == 0
    assert (cluster.kraft_version, cluster.image.features[METADATA]) == (1, 30)
    response = update(cluster, ("kraft.version", 0, UPGRADE))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.kraft_version == 1


def test_a_refused_update_of_features_leaves_the_quorum_alone() -> None:
    cluster = Cluster(kraft_version=0)
    response = update(cluster, ("kraft.version", 1, UPGRADE), (GROUP, 7, UPGRADE))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.kraft_version == 0


def test_controllers_must_support_the_level_as_well() -> None:
    cluster = Cluster()
    for number in (100, 101):
        request = ControllerRegistrationRequest(
            controller_id=number,
            incarnation_id=uuid_of(number),
            listeners=[Listener(name="CONTROLLER", host="host", port=9093)],
            features=[Feature(name=METADATA, min_supported_version=7, max_supported_version=30)],
        )
        assert cluster.send(request).error_code == 0
    response = update(cluster, (GROUP, 1, UPGRADE))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Controller 101 does not support this feature." in response.error_message
    cluster.check()


def test_a_node_with_a_single_level_is_named_with_it() -> None:
    cluster = Cluster()
    request = registration(1)
    request.features = [
        BrokerFeature(name=name, min_supported_version=level, max_supported_version=level)
        for name, level in {**cluster.image.features, "kraft.version": 1}.items()
    ]
    assert cluster.send(request).error_code == 0
    response = update(cluster, (ELIGIBLE, 0, SAFE), (METADATA, 29, SAFE))
    assert "Broker 1 only supports versions 1" in response.error_message


def test_before_3_7_controllers_do_not_register() -> None:
    cluster = Cluster(level=14, eligible_replicas=False)
    request = ControllerRegistrationRequest(controller_id=100, incarnation_id=uuid_of(100))
    with pytest.raises(KafkaError, match="too old to support controller registrations"):
        cluster.send(request)
    assert update(cluster, (METADATA, 15, UPGRADE)).error_code == 0
    assert cluster.send(request).error_code == 0


def test_a_listener_of_an_unknown_protocol_is_refused() -> None:
    cluster = Cluster()
    request = registration(1)
    request.listeners[0].security_protocol = 9
    with pytest.raises(KafkaError, match="Unknown security protocol 9"):
        cluster.send(request)
    assert cluster.image.brokers == {}


@pytest.mark.parametrize("is_set", [True, False])
def test_own_values_of_brokers_give_way_to_that_of_the_cluster(is_set: bool) -> None:
    cluster = Cluster(eligible_replicas=False)
    cluster.start(1)
    changes = {"1": {MINIMUM: "2", "log.cleaner.threads": "2"}} | (
        {"": {MINIMUM: "3"}} if is_set else {}
    )
    for name, values in changes.items():
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.BROKER,
            resource_name=name,
            configs=[AlterableConfig(name=key, value=value) for key, value in values.items()],
        )
        (result,) = cluster.send(IncrementalAlterConfigsRequest(resources=[resource])).responses
        assert result.error_code == 0
    assert update(cluster, (ELIGIBLE, 1, UPGRADE)).error_code == 0
    kind = ConfigResourceType.BROKER
    assert cluster.image.config_of(kind, "") == {MINIMUM: "3" if is_set else "1"}
    assert cluster.image.config_of(kind, "1") == {"log.cleaner.threads": "2"}
    cluster.check()
