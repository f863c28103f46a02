"""A node's settings as a whole: accepted and refused ones, and values derived from several."""

import subprocess
import sys
from collections.abc import Mapping

import pytest
from config.nodes import COMBINED

from moldau.config.addresses import Voter
from moldau.config.broker import BrokerConfig
from moldau.config.cleaner import cleaner_config
from moldau.config.listeners import Listener, SecurityProtocol
from moldau.config.standalone import standalone_properties
from moldau.config.unsupported import refuse_unsupported
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import BrokerId

BROKER = COMBINED | {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}
CONTROLLER = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:9093"}


def parsed(base: Mapping[str, str] = COMBINED, **changes: str) -> BrokerConfig:
    return BrokerConfig.parse(
        {**base, **{name.replace("__", "."): v for name, v in changes.items()}}
    )


def test_values_are_flat_and_typed() -> None:
    config = parsed(num__partitions="3", log__cleaner__min__cleanable__ratio="0.25")
    assert config.num_partitions == 3
    assert config.log_cleaner_min_cleanable_ratio == 0.25
    assert config.auto_create_topics_enable is True
    assert config.log_dirs == ("/data",)
    assert config.broker_rack is None


def test_settings_without_effect_are_known() -> None:
    config = parsed(num__io__threads="4", super__users="User:a", num__partitions="2")
    assert config.without_effect == ("num.io.threads", "super.users")


def test_settings_are_immutable() -> None:
    config = parsed()
    with pytest.raises(AttributeError):
        setattr(config, "num_partitions", 2)  # noqa: B010
    with pytest.raises(AttributeError):
        delattr(config, "num_partitions")


def test_equal_values_are_equal() -> None:
    assert parsed() == parsed()
    assert hash(parsed()) == hash(parsed())
    assert parsed() != parsed(num__partitions="2")


def test_a_node_without_a_file_has_good_settings() -> None:
    config = BrokerConfig.parse(standalone_properties("/data", host="::1", port=0))
    assert config.is_broker
    assert config.is_controller
    assert config.broker_listeners == (Listener("PLAINTEXT", "::1", 0, SecurityProtocol.PLAINTEXT),)


def test_the_controller_of_a_node_without_a_file_stays_on_this_machine() -> None:
    properties = standalone_properties("/data", host="192.0.2.1", port=0)
    config = BrokerConfig.parse(properties)
    assert [one.host for one in config.broker_listeners] == ["192.0.2.1"]
    assert [one.host for one in config.controller_listeners] == ["127.0.0.1"]


def test_the_examples_of_apache_are_accepted() -> None:
    """The settings of config/server.properties in Apache's distribution."""
    config = BrokerConfig.parse(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "socket.request.max.bytes": "104857600",
            "log.dirs": "/data/kraft-combined-logs",
            "num.partitions": "1",
            "num.recovery.threads.per.data.dir": "1",
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.retention.hours": "168",
            "log.segment.bytes": "1073741824",
            "log.retention.check.interval.ms": "300000",
        }
    )
    assert config.advertised_broker_listeners[0].host == "localhost"
    assert config.advertised_controller_listeners[0].port == 9093


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("num.partitons", "num.partitons: unknown setting; did you mean num.partitions?"),
        ("zookeeper.connect", "zookeeper.connect: unknown setting; Kafka 4 has removed it"),
        ("listener.name.plaintext.num.partitons", "unknown setting"),
        ("vendor.balancer", "vendor.balancer: unknown setting"),
    ],
)
def test_unknown_names_are_kept_and_can_be_refused(name: str, message: str) -> None:
    """Real files contain settings of plugins, vendors and earlier releases."""
    config = BrokerConfig.parse({**COMBINED, name: "x"})
    assert config.unknown == (name,)
    assert name not in config.without_effect
    config.refuse_unknown(["num.partitions"])
    with pytest.raises(KafkaError) as refused:
        config.refuse_unknown()
    assert message in refused.value.detail


# Each row: the change of COMBINED, and the error's line.
WRONG = [
    ({"num.partitions": "many"}, "many for configuration num.partitions: Not a number of type INT"),
    ({"num.partitions": "0"}, "0 for configuration num.partitions: Value must be at least 1"),
    ({"log.cleanup.policy": "shred"}, "log.cleanup.policy: String must be one of: compact, delete"),
    ({"broker.id": "2"}, "node.id=1 and broker.id=2 must be equal"),
    ({"process.roles": "broker,boss"}, "Invalid value boss for configuration process.roles"),
    ({"process.roles": ""}, "Configuration 'process.roles' must not be empty."),
    ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1) or"),
    ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
    ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
    ({"log.cleaner.dedupe.buffer.size": "1000"}, "must be at least 1MB per cleaner thread."),
    ({"cordoned.log.dirs": "/other"}, "Missing entries : /other"),
    ({"cordoned.log.dirs": "*,/data"}, "is set to [*], it must not contain other values"),
    ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes=5 must not be below"),
    ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0 needs"),
    ({"max.connections.per.ip.overrides": "host"}, "'host' is not address:count"),
    ({"connections.max.idle.ms": "50"}, "must be below connections.max.idle.ms=50"),
    ({"replica.fetch.wait.max.ms": "40000"}, "replica.socket.timeout.ms must be greater than"),
    ({"listeners": "PLAINTEXT"}, "listeners: 'PLAINTEXT' is not NAME://host:port"),
    ({"listeners": "PLAINTEXT://h:99999"}, "is not NAME://host:port"),
    ({"listeners": "STRANGE://h:1"}, "listener.security.protocol.map has no protocol for STRANGE"),
    (
        {"listeners": "PLAINTEXT://h:1,plaintext://h:2,CONTROLLER://h:3"},
        "listeners: listener names must be unique",
    ),
    ({"listeners": "PLAINTEXT://h:1,CONTROLLER://h:1"}, "share port 1"),
    ({"listeners": "PLAINTEXT://h:1"}, "controller.listener.names: CONTROLLER is not in listeners"),
    ({"listeners": "CONTROLLER://h:1"}, "a broker needs a listener that is not in"),
    ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect to 0.0.0.0"),
    ({"advertised.listeners": "SSL://h:1"}, "advertised.listeners: SSL is not in listeners"),
    ({"inter.broker.listener.name": "SSL"}, "inter.broker.listener.name: SSL is not one of"),
    (
        {
            "inter.broker.listener.name": "PLAINTEXT",
            "security.inter.broker.protocol": "PLAINTEXT",
        },
        "only one of inter.broker.listener.name and security.inter.broker.protocol",
    ),
    ({"early.start.listeners": "OTHER"}, "early.start.listeners: OTHER is not among"),
    ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "'PLAINTEXT:TLS' is not NAME:PROTOCOL"),
    ({"controller.quorum.bootstrap.servers": ""}, "must name the controllers"),
    ({"controller.quorum.voters": "2@h:1"}, "lacks node.id=1, which is a controller"),
    ({"group.coordinator.rebalance.protocols": "consumer"}, "classic cannot be left out"),
    ({"group.share.assignors": "a,b"}, "exactly one assignor"),
    (
        {"group.consumer.session.timeout.ms": "1000"},
        "group.consumer.session.timeout.ms must be greater than or equal to group.consumer.min",
    ),
    (
        {
            "group.consumer.min.heartbeat.interval.ms": "1",
            "group.consumer.max.heartbeat.interval.ms": "90000",
            "group.consumer.heartbeat.interval.ms": "50000",
        },
        "group.consumer.heartbeat.interval.ms must be less than group.consumer.session",
    ),
    ({"group.streams.num.standby.replicas": "3"}, "or equal to group.streams.max.standby"),
    ({"listener.name.plaintext.max.connections": "x"}, "max.connections: Not a number"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=lambda one: str(one)[:60])
def test_errors_are_one_line(changes: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        BrokerConfig.parse(COMBINED | changes)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert message.replace("[*]", "*") in refused.value.detail
    assert "\n" not in refused.value.detail


@pytest.mark.parametrize("name", ["node.id", "process.roles", "controller.listener.names"])
def test_missing_settings_are_named(name: str) -> None:
    with pytest.raises(KafkaError) as refused:
        BrokerConfig.parse({key: text for key, text in COMBINED.items() if key != name})
    assert refused.value.detail == (
        f'Missing required configuration "{name}" which has no default value.'
    )


def test_a_zookeeper_configuration_is_refused_with_the_missing_settings() -> None:
    file = {"zookeeper.connect": "localhost:2181", "broker.id": "0", "log.dirs": "/data"}
    with pytest.raises(KafkaError) as refused:
        BrokerConfig.parse(file)
    words = refused.value.detail
    assert words.startswith('Missing required configuration "process.roles" which has no default')
    assert "Kafka 3 with ZooKeeper" in words
    assert "\n" not in words


def test_the_older_name_of_the_node_id_is_accepted() -> None:
    config = BrokerConfig.parse(
        {key: text for key, text in COMBINED.items() if key != "node.id"} | {"broker.id": "7"}
    )
    assert config.node_id == 7
    assert config.broker_id == 7


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.plaintext.ssl.keystore.location",
        "listener.name.plaintext.max.connections",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config",
        "listener.name.sasl_ssl.oauthbearer.connections.max.reauth.ms",
        "super.users",
        "allow.everyone.if.no.acl.found",
        "config.providers.file.class",
        "metrics.jmx.include",
        "metrics.context.cluster",
        "rsm.config.anything",
    ],
)
def test_settings_of_listeners_and_plugins_are_known(name: str) -> None:
    assert BrokerConfig.parse(COMBINED | {name: "1"}).given[name] == "1"


def test_a_listeners_own_setting_has_priority() -> None:
    config = parsed(max__connections="100", listener__name__plaintext__max__connections="5")
    assert config.of_listener("PLAINTEXT", "max.connections") == 5
    assert config.of_listener("CONTROLLER", "max.connections") == 100


def test_hours_minutes_and_milliseconds_set_the_same_value() -> None:
    config = parsed(log__retention__hours="2", log__roll__hours="3", log__roll__jitter__hours="1")
    assert (config.retention_ms, config.roll_ms, config.roll_jitter_ms) == (
        7_200_000, 10_800_000, 3_600_000,
    )  # fmt: skip
    config = parsed(log__retention__hours="2", log__retention__minutes="1")
    assert config.retention_ms == 60_000
    config = parsed(log__retention__minutes="1", log__retention__ms="5", log__roll__ms="7")
    assert (config.retention_ms, config.roll_ms) == (5, 7)
    assert parsed(log__retention__hours="-3").retention_ms == -1
    assert parsed(log__flush__scheduler__interval__ms="9").flush_ms == 9
    config = parsed(log__flush__scheduler__interval__ms="9", log__flush__interval__ms="4")
    assert config.flush_ms == 4


def test_log_dirs_has_priority_over_log_dir() -> None:
    assert parsed(log__dir="/one").directories == ("/data",)
    config = BrokerConfig.parse({k: v for k, v in COMBINED.items() if k != "log.dirs"})
    assert config.directories == config.log_dir
    assert parsed().metadata_directory == "/data"
    assert parsed(metadata__log__dir="/meta").metadata_directory == "/meta"


def test_listeners_know_their_protocol() -> None:
    config = parsed(
        listeners="EXTERNAL://:1,PLAINTEXT://[::1]:2,controller://h:3",
        listener__security__protocol__map="EXTERNAL:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    )
    assert config.bound_listeners == (
        Listener("EXTERNAL", "", 1, SecurityProtocol.SSL),
        Listener("PLAINTEXT", "::1", 2, SecurityProtocol.PLAINTEXT),
        Listener("CONTROLLER", "h", 3, SecurityProtocol.PLAINTEXT),
    )
    assert [one.name for one in config.broker_listeners] == ["EXTERNAL", "PLAINTEXT"]
    assert [one.name for one in config.controller_listeners] == ["CONTROLLER"]
    assert config.inter_broker_name == "PLAINTEXT"


def test_an_unmapped_controller_listener_is_plain_unless_something_is_secured() -> None:
    assert parsed().security_protocols["CONTROLLER"] is SecurityProtocol.PLAINTEXT
    with pytest.raises(KafkaError, match="has no protocol for CONTROLLER"):
        parsed(listeners="SSL://h:1,CONTROLLER://h:2", security__inter__broker__protocol="SSL")


def test_two_listeners_share_a_port_only_with_both_kinds_of_addresses() -> None:
    shared = "PLAINTEXT://127.0.0.1:1,SSL://[::1]:1,CONTROLLER://h:0"
    mapped = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
    parsed(listeners=shared, listener__security__protocol__map=mapped)
    with pytest.raises(KafkaError, match="PLAINTEXT and SSL share port 1"):
        parsed(
            listeners=shared.replace("[::1]", "127.0.0.2"),
            listener__security__protocol__map=mapped,
        )


def test_a_controller_is_reached_at_its_address_among_the_voters() -> None:
    config = parsed(
        listeners="PLAINTEXT://h:1,CONTROLLER://:2", controller__quorum__voters="1@outside:22"
    )
    assert config.voters == (Voter(BrokerId(1), "outside", 22),)
    assert config.advertised_controller_listeners == (
        Listener("CONTROLLER", "outside", 22, SecurityProtocol.PLAINTEXT),
    )
    config = parsed(listeners="PLAINTEXT://h:1,CONTROLLER://0.0.0.0:2")
    assert config.advertised_controller_listeners[0].host == ""


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (BROKER, {"controller.quorum.voters": "1@h:1"}, "has node.id=1, which is not a controller"),
        (BROKER, {"listeners": COMBINED["listeners"]}, "none of controller.listener.names"),
        (BROKER, {"controller.quorum.auto.join.enable": "true"}, "is only for controllers"),
        (
            BROKER,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "has no protocol for CONTROLLER",
        ),
        (CONTROLLER, {"listeners": COMBINED["listeners"]}, "must have only the listeners of"),
    ],
)
def test_each_role_has_its_rules(
    base: dict[str, str], changes: dict[str, str], message: str
) -> None:
    BrokerConfig.parse(base)
    with pytest.raises(KafkaError, match=message):
        BrokerConfig.parse(base | changes)


def test_sasl_between_brokers_needs_an_enabled_mechanism() -> None:
    secured = {
        "listeners": "SASL_PLAINTEXT://h:1,CONTROLLER://h:2",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    with pytest.raises(KafkaError, match="PLAIN is not in sasl"):
        BrokerConfig.parse(COMBINED | secured)
    own = {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,GSSAPI"}
    BrokerConfig.parse(COMBINED | secured | own)


def test_connection_limits_by_address() -> None:
    config = parsed(max__connections__per__ip__overrides="10.0.0.1:5, host:7,[::1]:9")
    assert config.connection_limits_by_host == {"10.0.0.1": 5, "host": 7, "::1": 9}


def test_cleaners_share_their_memory() -> None:
    config = parsed(log__cleaner__threads="2", log__cleaner__dedupe__buffer__size="10000000")
    assert cleaner_config(config).dedupe_buffer_bytes == 5_000_000
    assert cleaner_config(parsed()).io_buffer_bytes == 524_288


def test_importing_the_settings_is_cheap() -> None:
    """A broker starts in less than 300 ms; hundreds of declarations must not take a tenth of it."""
    program = (
        "import time, re, enum, typing, functools, moldau.protocol.errors\n"
        "start = time.process_time()\n"
        "import moldau.config.broker\n"
        "print(time.process_time() - start)\n"
    )
    command = [sys.executable, "-c", program]
    seconds = [
        float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in "123"
    ]
    assert min(seconds) < 0.1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("create.topic.policy.class.name", "example.Policy"),
        ("config.providers", "file"),
        ("remote.log.storage.system.enable", "true"),
    ],
)
def test_unsupported_security_settings_are_refused(name: str, text: str) -> None:
    refuse_unsupported(parsed())
    config = BrokerConfig.parse(COMBINED | {name: text})
    with pytest.raises(KafkaError, match=f"{name}={text}: there|{name}={text}: values"):
        refuse_unsupported(config)
