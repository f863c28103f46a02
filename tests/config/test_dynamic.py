"""Settings of brokers that change at run time."""

import pytest
from config.nodes import COMBINED

from moldau.config.broker import BrokerConfig
from moldau.config.dynamic import check_broker_change, layered_config, usable
from moldau.config.layers import Layers
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

STATIC = BrokerConfig.parse(COMBINED).given


def layers(
    static: dict[str, str] | None = None,
    cluster: dict[str, str] | None = None,
    own: dict[str, str] | None = None,
) -> Layers:
    return Layers({**STATIC, **(static or {})}, cluster or {}, own or {})


def test_one_brokers_value_has_priority_over_all_brokers_and_the_file() -> None:
    name = "log.cleaner.backoff.ms"
    assert layered_config(layers({name: "1"})).log_cleaner_backoff_ms == 1
    assert layered_config(layers({name: "1"}, {name: "2"})).log_cleaner_backoff_ms == 2
    assert layered_config(layers({name: "1"}, {name: "2"}, {name: "3"})).log_cleaner_backoff_ms == 3


def test_a_synonym_in_a_higher_layer_hides_the_others() -> None:
    """Milliseconds have priority over hours, unless the hours are set at run time."""
    static = {"log.retention.minutes": "5", "log.retention.hours": "7", "log.roll.hours": "1"}
    config = layered_config(layers(static, {"log.retention.ms": "100", "log.roll.ms": "9"}))
    assert (config.retention_ms, config.roll_ms) == (100, 9)
    config = layered_config(
        layers({"log.flush.scheduler.interval.ms": "8"}, {"log.flush.interval.ms": "3"})
    )
    assert config.flush_ms == 3


def test_layers_are_remembered() -> None:
    changed = layers({}, {"message.max.bytes": "1"}, {"log.cleaner.threads": "2"})
    assert layered_config(changed).layers == changed
    assert BrokerConfig.parse(COMBINED).layers == Layers(STATIC)


def test_an_interval_set_for_all_is_kept_within_this_brokers_bounds() -> None:
    name = "group.consumer.assignment.interval.ms"
    bounds = {"group.consumer.min.assignment.interval.ms": "500"}
    config = layered_config(layers(bounds, {name: "3"}))
    assert config.group_consumer_assignment_interval_ms == 500


def test_throttles_exist_only_at_run_time() -> None:
    rate = {"leader.replication.throttled.rate": "5"}
    assert layered_config(layers(own=rate)).layers.own == rate
    assert BrokerConfig.parse({**COMBINED, **rate}).unknown == tuple(rate)


# Each row: the change, whether it is for all brokers, the error.
REFUSED = [
    ({"num.partitions": "3"}, True, "Cannot update these configs dynamically: [num.partitions]"),
    ({"num.partitions": "3"}, False, "Cannot update these configs dynamically: [num.partitions]"),
    ({"log.roll.hours": "3"}, True, "dynamically: [log.roll.hours]"),
    ({"moldau.flush.policy": "os"}, False, "dynamically: [moldau.flush.policy]"),
    (
        {"message.max.bytes": "-1"},
        True,
        "-1 for configuration message.max.bytes: Value must be at least 0",
    ),
    ({"message.max.bytes": "x"}, False, "Not a number of type INT"),
    ({"listeners": "PLAINTEXT://h:1"}, True, "broker id must be specified: [listeners]"),
    (
        {"listener.name.plaintext.ssl.keystore.location": "/k"},
        True,
        (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.plaintext.ssl.keystore.location]"
        ),
    ),
    ({"ssl.keystore.location": "/k"}, False, "only per-listener using the listener prefix: [ssl"),
    (
        {"num.io.threads": "20"},
        False,
        "=20, value should not be greater than double the current value 8",
    ),
    ({"num.io.threads": "3"}, False, "=3, value should be at least half the current value 8"),
    ({"log.cleaner.threads": "0"}, True, "Log cleaner threads should be at least 1"),
    ({"listeners": "CONTROLLER://h:1"}, False, "a broker needs a listener"),
    (
        {"listeners": "SSL://h:2,CONTROLLER://h:1"},
        False,
        "listener.security.protocol.map has no protocol for CONTROLLER",
    ),
    (
        {
            "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
            "ssl.protocol": "TLSv1.2",
        },
        False,
        "Configs cannot be updated dynamically for existing listener ListenerName(PLAINTEXT), ",
    ),
    (
        {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"},
        False,
        "Security protocol cannot be updated for existing listener ListenerName(PLAINTEXT)",
    ),
    ({"listeners": "PLAINTEXT://h:2"}, False, "CONTROLLER is not in listeners"),
    ({"advertised.listeners": "PLAINTEXT://h:3"}, False, "dynamically: [advertised.listeners]"),
    ({"cordoned.log.dirs": "/elsewhere"}, False, "Missing entries : /elsewhere"),
    ({"leader.replication.throttled.rate": "-1"}, False, "Value must be at least 0"),
]


def test_unknown_names_are_kept() -> None:
    """A plugin may know them; Kafka stores them, too."""
    unknown = {"mesage.max.bytes": "3", "vendor.secret": "x"}
    kept = check_broker_change(layers(own=unknown), BrokerConfig.parse(COMBINED), for_all=False)
    assert kept.unknown == tuple(unknown)
    assert kept.layers.own == unknown


@pytest.mark.parametrize(("changes", "for_all", "message"), REFUSED, ids=str)
def test_forbidden_changes_are_refused(
    changes: dict[str, str], for_all: bool, message: str
) -> None:
    """Kafka answers INVALID_REQUEST, also to bad values (KAFKA-13609)."""
    changed = layers(cluster=changes) if for_all else layers(own=changes)
    with pytest.raises(KafkaError) as refused:
        check_broker_change(changed, BrokerConfig.parse(COMBINED), for_all=for_all)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert message in refused.value.detail


@pytest.mark.parametrize(
    ("changes", "for_all"),
    [
        ({"message.max.bytes": "7"}, True),
        ({"message.max.bytes": "7"}, False),
        ({"num.io.threads": "16"}, True),
        ({"listener.name.plaintext.max.connections": "7"}, True),
        ({"listener.name.plaintext.ssl.keystore.location": "/k"}, False),
        ({"listeners": COMBINED["listeners"].replace("9092", "9999")}, False),
        ({"cordoned.log.dirs": "*"}, False),
        ({"leader.replication.throttled.rate": "7"}, False),
        ({}, True),
    ],
    ids=str,
)
def test_allowed_changes_are_accepted(changes: dict[str, str], for_all: bool) -> None:
    changed = layers(cluster=changes) if for_all else layers(own=changes)
    check_broker_change(changed, BrokerConfig.parse(COMBINED), for_all=for_all)


def test_the_valid_part_of_a_stored_layer_is_used() -> None:
    good, bad = usable({"message.max.bytes": "7", "num.partitions": "2", "x": "y"}, for_all=True)
    assert good == {"message.max.bytes": "7", "x": "y"}
    assert set(bad) == {"num.partitions"}
