"""Settings of a topic, a group and a client metrics subscription."""

import pytest
from config.nodes import COMBINED

from moldau.config.broker import BrokerConfig
from moldau.config.client_metrics import validate_client_metrics
from moldau.config.group import group_config, validate_group_configs
from moldau.config.topic import log_config, validate_topic_configs
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

NODE = BrokerConfig.parse(COMBINED)


def node(**changes: str) -> BrokerConfig:
    return BrokerConfig.parse(
        COMBINED | {name.replace("__", "."): text for name, text in changes.items()}
    )


def test_a_topic_without_settings_obeys_the_broker() -> None:
    broker = node(
        log__retention__minutes="5",
        log__roll__hours="2",
        log__roll__jitter__ms="7",
        log__flush__scheduler__interval__ms="11",
        message__max__bytes="1234",
        log__cleanup__policy="compact",
        min__insync__replicas="2",
    )
    config = log_config({}, broker)
    assert config.retention_ms == 300_000
    assert config.segment_ms == 7_200_000
    assert config.segment_jitter_ms == 7
    assert config.flush_ms == 11
    assert config.max_message_bytes == 1234
    assert config.compacts
    assert not config.deletes
    assert config.min_insync_replicas == 2


def test_a_topics_own_setting_has_priority() -> None:
    config = log_config({"retention.ms": "-1", "cleanup.policy": ""}, node(log__retention__ms="5"))
    assert config.retention_ms == -1
    assert config.cleanup_policy == ()


def test_settings_of_another_version_do_not_stop_a_topic() -> None:
    config = log_config({"from.the.future": "1", "segment.ms": "?", "flush.ms": "3"}, NODE)
    assert config.segment_ms == NODE.roll_ms
    assert config.flush_ms == 3


def test_settings_without_effect_cost_a_topic_nothing() -> None:
    """They may be long, and every change of settings is applied in the event loop."""
    assert log_config({"leader.replication.throttled.replicas": Unread("0:1")}, NODE) == log_config(
        {}, NODE
    )


class Unread(str):
    __slots__ = ()

    def split(self, *_args: object, **_options: object) -> list[str]:
        raise AssertionError("it was parsed")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.msec": "1"}, "Unknown topic config name: retention.msec"),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        ({"cleanup.policy": "delete,,"}, "'cleanup.policy' values must not be empty."),
        ({"min.insync.replicas": "0"}, "must be at least 1"),
        ({"preallocate": "maybe"}, "preallocate: Expected value to be either true or false"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "conflict topic config setting min.compaction.lag.ms (2) > max.compaction.lag.ms (1)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker.",
        ),
        ({"leader.replication.throttled.replicas": "1"}, "must be the literal '[*]' or a list of"),
    ],
)
def test_a_topic_is_refused_what_kafka_refuses(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_topic_configs(overrides, NODE)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert message.replace("[*]", "*") in refused.value.detail


def test_lags_are_compared_with_the_brokers() -> None:
    with pytest.raises(KafkaError, match="conflict topic config setting"):
        validate_topic_configs(
            {"min.compaction.lag.ms": "20"}, node(log__cleaner__max__compaction__lag__ms="10")
        )


def test_a_group_without_settings_obeys_the_broker() -> None:
    config = group_config({}, node(group__consumer__session__timeout__ms="50000"))
    assert config.consumer_session_timeout_ms == 50_000
    assert config.share_auto_offset_reset == "latest"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"session.timeout.ms": "1"}, "Unknown group config name: session.timeout.ms"),
        (
            {"consumer.session.timeout.ms": "100"},
            "must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"share.record.lock.duration.ms": "70000"},
            "must be less than or equal to group.share.max.record.lock.duration.ms",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "less than or equal to group.streams.max.standby.replicas",
        ),
        ({"share.delivery.count.limit": "1"}, "must be at least 2"),
        ({"share.isolation.level": "dirty"}, "must be one of: read_committed"),
    ],
)
def test_a_groups_settings_stay_within_the_brokers_bounds(
    overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_group_configs(overrides, NODE)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert message in refused.value.detail


def test_a_session_outlasts_a_heartbeat() -> None:
    broker = node(
        group__consumer__min__session__timeout__ms="1000",
        group__consumer__max__heartbeat__interval__ms="30000",
    )
    overrides = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "6000"}
    with pytest.raises(KafkaError, match=r"consumer\.session\.timeout\.ms must be greater than"):
        validate_group_configs(overrides, broker)


def test_later_bounds_limit_earlier_values() -> None:
    """A value that was allowed when it was set may be out of bounds now."""
    overrides = {"consumer.session.timeout.ms": "50000", "streams.num.standby.replicas": "2"}
    validate_group_configs(overrides, NODE)
    config = group_config(
        overrides,
        node(
            group__consumer__max__session__timeout__ms="46000",
            group__streams__max__standby__replicas="1",
        ),
    )
    assert config.consumer_session_timeout_ms == 46_000
    assert config.streams_num_standby_replicas == 1


@pytest.mark.parametrize(
    ("name", "overrides", "code"),
    [
        ("", {}, ErrorCode.INVALID_REQUEST),
        ("sub", {"interval": "1"}, ErrorCode.INVALID_REQUEST),
        ("sub", {"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ("sub", {"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ("sub", {"interval.ms": "often"}, ErrorCode.INVALID_CONFIG),
        ("sub", {"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ("sub", {"match": "colour=blue"}, ErrorCode.INVALID_CONFIG),
        ("sub", {"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_subscription_is_checked(name: str, overrides: dict[str, str], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_client_metrics(name, overrides)
    assert refused.value.code is code


def test_a_valid_subscription_is_accepted() -> None:
    match = "client_software_name=.*java.*,client_id=a"
    validate_client_metrics("sub", {"metrics": "*", "interval.ms": "100", "match": match})
