from collections.abc import Iterator

import pytest
from core.controller.cluster import CONTROLLER_ID, Cluster

from moldau.config.alter import Operation
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.log_records import ClearElrRecord
from moldau.protocol.messages import alter_configs as legacy
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
GROUP, METRICS = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.start(1)
    cluster.create("t", [1])
    yield cluster
    cluster.check()


def resource(
    kind: int, name: str, *changes: tuple[str, str | None, int] | tuple[str, str]
) -> AlterConfigsResource:
    configs = [
        AlterableConfig(name=each[0], value=each[1], config_operation=(*each, 0)[2])
        for each in changes
    ]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def alter(
    cluster: Cluster, *resources: AlterConfigsResource, validate: bool = False
) -> list[ErrorCode]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate)
    response = cluster.send(request)
    assert all(bool(each.error_code) == bool(each.error_message) for each in response.responses)
    return [ErrorCode(each.error_code) for each in response.responses]


def replace(cluster: Cluster, kind: int, name: str, **values: str | None) -> ErrorCode:
    configs = [
        legacy.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in values.items()
    ]
    requested = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (result,) = cluster.send(legacy.AlterConfigsRequest(resources=[requested])).responses
    return ErrorCode(result.error_code)


def test_settings_are_set_added_to_taken_from_and_removed(cluster: Cluster) -> None:
    assert alter(
        cluster,
        resource(
            TOPIC, "t", ("retention.ms", "5"), ("cleanup.policy", "compact", Operation.APPEND)
        ),
    ) == [ErrorCode.NONE]
    assert cluster.image.config_of(TOPIC, "t") == {
        "retention.ms": "5",
        "cleanup.policy": "delete,compact",
    }
    assert alter(
        cluster,
        resource(
            TOPIC,
            "t",
            ("retention.ms", None, Operation.DELETE),
            ("cleanup.policy", "delete", Operation.SUBTRACT),
        ),
    ) == [ErrorCode.NONE]
    assert cluster.image.config_of(TOPIC, "t") == {"cleanup.policy": "compact"}


def test_the_older_request_replaces_all_settings(cluster: Cluster) -> None:
    assert replace(cluster, TOPIC, "t", retention_ms="5", segment_bytes="1048576") == 0
    assert replace(cluster, TOPIC, "t", retention_ms="6") == 0
    assert cluster.image.config_of(TOPIC, "t") == {"retention.ms": "6"}
    before = len(cluster.log)
    assert replace(cluster, TOPIC, "t", retention_ms="6") == 0
    assert len(cluster.log) == before, "an unchanged setting of a topic is not written again"
    assert replace(cluster, TOPIC, "t") == 0
    assert not cluster.image.config_of(TOPIC, "t")


def test_brokers_groups_and_client_metrics_have_settings(cluster: Cluster) -> None:
    assert (
        alter(
            cluster,
            resource(BROKER, "1", ("log.cleaner.threads", "2")),
            resource(BROKER, "", ("log.retention.ms", "7")),
            resource(BROKER, str(CONTROLLER_ID), ("log.cleaner.threads", "2")),
            resource(GROUP, "g", ("consumer.session.timeout.ms", "50000")),
            resource(METRICS, "m", ("interval.ms", "1000")),
        )
        == [ErrorCode.NONE] * 5
    )
    assert cluster.image.config_of(BROKER, "") == {"log.retention.ms": "7"}
    assert cluster.image.config_of(GROUP, "g") == {"consumer.session.timeout.ms": "50000"}
    before = len(cluster.log)
    alter(cluster, resource(BROKER, "1", ("log.cleaner.threads", "2")))
    assert len(cluster.log) == before + 1, "the setting is written again, even if unchanged"


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (resource(TOPIC, "missing", ("retention.ms", "5")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(TOPIC, "", ("retention.ms", "5")), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "a/b", ("retention.ms", "5")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource(TOPIC, "t", ("retention.ms", "abc")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", ("no.such", "1")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", ("retention.ms", "1", Operation.APPEND)), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", ("retention.ms", "1", 9)), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "t", ("retention.ms", None, Operation.SET)), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "t", ("compression.type", "x" * 40_000)), ErrorCode.INVALID_CONFIG),
        (resource(BROKER, "x", ("log.retention.ms", "5")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "-1", ("log.retention.ms", "5")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, "77", ("log.retention.ms", "5")), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (resource(GROUP, "", ("consumer.session.timeout.ms", "5")), ErrorCode.INVALID_REQUEST),
        (resource(GROUP, "g", ("consumer.session.timeout.ms", "5")), ErrorCode.INVALID_CONFIG),
        (resource(METRICS, "", ("interval.ms", "1000")), ErrorCode.INVALID_REQUEST),
        (
            resource(ConfigResourceType.BROKER_LOGGER, "1", ("root", "INFO")),
            ErrorCode.INVALID_REQUEST,
        ),
        (resource(99, "x", ("a", "b")), ErrorCode.UNSUPPORTED_VERSION),
        (resource(0, "x", ("a", "b")), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_errors_of_one_resource_do_not_affect_the_others(
    cluster: Cluster, requested: AlterConfigsResource, code: ErrorCode
) -> None:
    good = resource(GROUP, "good", ("consumer.session.timeout.ms", "50000"))
    before = len(cluster.log)
    assert alter(cluster, requested, good) == [code, ErrorCode.NONE]
    assert len(cluster.log) == before + 1


def test_a_resource_changes_as_a_whole_or_not_at_all(cluster: Cluster) -> None:
    requested = resource(TOPIC, "t", ("retention.ms", "5"), ("segment.ms", "abc"))
    assert alter(cluster, requested) == [ErrorCode.INVALID_CONFIG]
    assert not cluster.image.config_of(TOPIC, "t")


def test_a_resource_that_is_named_twice_is_not_changed(cluster: Cluster) -> None:
    once = resource(TOPIC, "t", ("retention.ms", "5"))
    assert alter(cluster, once, once) == [ErrorCode.INVALID_REQUEST]
    assert not cluster.image.config_of(TOPIC, "t")


def test_changes_can_be_validated_only(cluster: Cluster) -> None:
    before = len(cluster.log)
    requested = resource(TOPIC, "t", ("retention.ms", "5"))
    bad = resource(TOPIC, "t2", ("retention.ms", "5"))
    assert alter(cluster, requested, bad, validate=True) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert len(cluster.log) == before


def test_another_min_insync_replicas_clears_eligible_replicas(cluster: Cluster) -> None:
    alter(cluster, resource(TOPIC, "t", ("min.insync.replicas", "2")))
    assert cluster.log[-1] == ClearElrRecord(topic_name="t")
    alter(cluster, resource(BROKER, "", ("min.insync.replicas", "2")))
    assert cluster.log[-1] == ClearElrRecord()
    assert alter(cluster, resource(BROKER, "1", ("min.insync.replicas", "2"))) == [
        ErrorCode.INVALID_CONFIG
    ]
    assert alter(
        cluster, resource(BROKER, "", ("min.insync.replicas", None, Operation.DELETE))
    ) == [ErrorCode.INVALID_CONFIG]
