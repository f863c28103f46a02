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


def test_one_brokers_word_comes_before_all_brokers_and_that_before_the_file() -> None:
    name = "log.cleaner.backoff.ms"
    assert layered_config(layers({name: "1"})).log_cleaner_backoff_ms == 1
    assert layered_config(layers({name: "1"}, {name: "2"})).log_cleaner_backoff_ms == 2
    assert layered_config(layers({name: "1"}, {name: "2"}, {name: "3"})).log_cleaner_backoff_ms == 3


def test_a_synonym_in_a_higher_layer_hides_the_others() -> None:
    """Hours count less than milliseconds, unless they are said at run time."""
    static = {"log.retention.minutes": "5", "log.retention.hours": "7", "log.roll.hours": "1"}
    config = layered_config(layers(static, {"log.retention.ms": "100", "log.roll.ms": "9"}))
    assert (config.retention_ms, config.roll_ms) == (100, 9)
    config = layered_config(
        layers({"log.flush.scheduler.interval.ms": "8"}, {"log.flush.interval.ms": "3"})
    )
    assert config.flush_ms == 3


def test_layers_are_remembered() -> None:
    told = layers({}, {"message.max.bytes": "1"}, {"log.cleaner.threads": "2"})
    assert layered_config(told).layers == told
    assert BrokerConfig.parse(COMBINED).layers == Layers(STATIC)


def test_an_interval_set_for_all_is_kept_within_this_brokers_bounds() -> None:
    name = "group.consumer.assignment.interval.ms"
    bounds = {"group.consumer.min.assignment.interval.ms": "500"}
    config = layered_config(layers(bounds, {name: "3"}))
    assert config.group_consumer_assignment_interval_ms == 500


def test_throttles_exist_only_at_run_time() -> None:
    rate = {"leader.replication.throttled.rate": "5"}
    assert layered_config(layers(own=rate)).layers.own == rate
    with pytest.raises(KafkaError, match="unknown setting"):
        BrokerConfig.parse({**COMBINED, **rate})


# Each row: what is changed, whether for all brokers, what the error says.
REFUSED = [
    ({"num.partitions": "3"}, True, "num.partitions can not be changed at run time"),
    ({"num.partitions": "3"}, False, "num.partitions can not be changed at run time"),
    ({"log.roll.hours": "3"}, True, "log.roll.hours can not be changed at run time"),
    ({"moldau.flush.policy": "os"}, False, "can not be changed at run time"),
    ({"mesage.max.bytes": "3"}, True, "unknown setting; did you mean message.max.bytes?"),
    ({"message.max.bytes": "-1"}, True, "message.max.bytes='-1' must be at least 0"),
    ({"message.max.bytes": "x"}, False, "is not a whole number"),
    ({"listeners": "PLAINTEXT://h:1"}, True, "listeners can be changed only for one broker"),
    (
        {"listener.name.plaintext.ssl.keystore.location": "/k"},
        True,
        "can be changed only for one broker",
    ),
    ({"ssl.keystore.location": "/k"}, False, "only for a listener: listener.name.<name>.ssl"),
    ({"num.io.threads": "20"}, False, "num.io.threads=20 must be between half and double of 8"),
    ({"num.io.threads": "3"}, False, "must be between half and double of 8"),
    ({"log.cleaner.threads": "0"}, True, "must be between half and double of 1"),
    ({"listeners": "CONTROLLER://h:1"}, False, "a broker needs a listener"),
    (
        {"listeners": "SSL://h:2,CONTROLLER://h:1"},
        False,
        "listener.security.protocol.map has no protocol for CONTROLLER",
    ),
    (
        {"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"},
        False,
        "only keys, certificates and limits of a listener in use can be changed",
    ),
    (
        {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"},
        False,
        "listener.security.protocol.map: PLAINTEXT is in use",
    ),
    ({"listeners": "PLAINTEXT://h:2"}, False, "CONTROLLER is not in listeners"),
    ({"advertised.listeners": "PLAINTEXT://h:3"}, False, "can not be changed at run time"),
    ({"cordoned.log.dirs": "/elsewhere"}, False, "/elsewhere is not in log.dirs"),
    ({"leader.replication.throttled.rate": "-1"}, False, "must be at least 0"),
]


@pytest.mark.parametrize(("changes", "for_all", "says"), REFUSED, ids=str)
def test_what_can_not_change_is_refused(changes: dict[str, str], for_all: bool, says: str) -> None:
    """Kafka answers INVALID_REQUEST, also to bad values (KAFKA-13609)."""
    told = layers(cluster=changes) if for_all else layers(own=changes)
    with pytest.raises(KafkaError) as refused:
        check_broker_change(told, BrokerConfig.parse(COMBINED), for_all=for_all)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert says in refused.value.detail


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
def test_what_may_change_is_taken(changes: dict[str, str], for_all: bool) -> None:
    told = layers(cluster=changes) if for_all else layers(own=changes)
    check_broker_change(told, BrokerConfig.parse(COMBINED), for_all=for_all)


def test_a_stored_layer_is_used_as_far_as_it_goes() -> None:
    good, bad = usable({"message.max.bytes": "7", "num.partitions": "2", "x": "y"}, for_all=True)
    assert good == {"message.max.bytes": "7"}
    assert set(bad) == {"num.partitions", "x"}
