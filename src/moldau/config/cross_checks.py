"""Rules between settings, which Kafka checks when a node starts or a setting changes. Errors for
settings that can change at run time have Kafka's words, because its tools show them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.config.listeners import WILDCARD_HOST, SecurityProtocol, check_ports
from moldau.config.values import MIB
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

_MIN_VALUE_MAX = [
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms",
     "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms",
     "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.assignment.interval.ms", "group.consumer.assignment.interval.ms",
     "group.consumer.max.assignment.interval.ms"),
    ("group.share.min.heartbeat.interval.ms", "group.share.heartbeat.interval.ms",
     "group.share.max.heartbeat.interval.ms"),
    ("group.share.min.session.timeout.ms", "group.share.session.timeout.ms",
     "group.share.max.session.timeout.ms"),
    ("group.share.min.assignment.interval.ms", "group.share.assignment.interval.ms",
     "group.share.max.assignment.interval.ms"),
    ("group.share.min.delivery.count.limit", "group.share.delivery.count.limit",
     "group.share.max.delivery.count.limit"),
    ("group.share.min.partition.max.record.locks", "group.share.partition.max.record.locks",
     "group.share.max.partition.max.record.locks"),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms",
     "group.share.max.record.lock.duration.ms"),
    ("group.streams.min.heartbeat.interval.ms", "group.streams.heartbeat.interval.ms",
     "group.streams.max.heartbeat.interval.ms"),
    ("group.streams.min.session.timeout.ms", "group.streams.session.timeout.ms",
     "group.streams.max.session.timeout.ms"),
    ("group.streams.min.assignment.interval.ms", "group.streams.assignment.interval.ms",
     "group.streams.max.assignment.interval.ms"),
]  # fmt: skip
_AT_MOST = [
    ("group.share.max.size", "group.share.max.share.sessions"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
]
_BELOW = [
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.session.timeout.ms"),
    ("group.streams.heartbeat.interval.ms", "group.streams.session.timeout.ms"),
]


def check_broker_config(config: "BrokerConfig") -> None:
    """Raises INVALID_CONFIG for the first violated rule."""
    for check in _CHECKS:
        check(config)


def _require(holds: object, complaint: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.INVALID_CONFIG, complaint)


def _number(config: "BrokerConfig", name: str) -> int:
    value = getattr(config, config.declared[name].attribute)
    assert isinstance(value, int)
    return value


def _check_order(config: "BrokerConfig") -> None:
    more, less = "greater than or equal to", "less than or equal to"
    standby = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    rows = [(*standby, f"{standby[0]} must be {less} {standby[1]}")]
    rows += [(small, large, f"{large} must be {more} {small}") for small, large in _AT_MOST]
    for smallest, value, largest in _MIN_VALUE_MAX:
        rows += [
            (smallest, largest, f"{largest} must be {more} {smallest}"),
            (smallest, value, f"{value} must be {more} {smallest}"),
            (value, largest, f"{value} must be {less} {largest}"),
        ]
    for small, large, complaint in rows:
        _require(_number(config, small) <= _number(config, large), complaint)
    for small, large in _BELOW:
        low, high = _number(config, small), _number(config, large)
        _require(low < high, f"{small} must be less than {large}")


def _check_identity(config: "BrokerConfig") -> None:
    _require(
        config.node_id == config.broker_id,
        f"node.id={config.node_id} and broker.id={config.broker_id} must be equal",
    )


def _check_logs(config: "BrokerConfig") -> None:
    _require(
        config.roll_ms >= 1, "requirement failed: log.roll.ms must be greater than or equal to 1"
    )
    _require(
        config.roll_jitter_ms >= 0,
        "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
    )
    _require(
        config.retention_ms >= 1 or config.retention_ms == -1,
        "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to "
        "1",
    )
    _require(
        config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1) > MIB,
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner "
        "thread.",
    )
    cordoned = config.cordoned_log_dirs
    if "*" in cordoned:
        _require(
            len(cordoned) == 1,
            "requirement failed: When cordoned.log.dirs is set to *, it must not contain other "
            "values",
        )
    else:
        strange = [path for path in cordoned if path not in config.directories]
        _require(
            not strange,
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or "
            f"log.dir. Missing entries : {', '.join(strange)}",
        )


def _check_connections(config: "BrokerConfig") -> None:
    queued = config.queued_max_request_bytes
    _require(
        queued <= 0 or queued >= config.socket_request_max_bytes,
        f"queued.max.request.bytes={queued} must not be below "
        f"socket.request.max.bytes={config.socket_request_max_bytes}",
    )
    limits = config.connection_limits_by_host
    _require(
        config.max_connections_per_ip > 0 or limits,
        "max.connections.per.ip=0 needs max.connections.per.ip.overrides",
    )
    delay_ms, idle_ms = (
        config.connection_failed_authentication_delay_ms,
        config.connections_max_idle_ms,
    )
    _require(
        idle_ms < 0 or delay_ms < idle_ms,
        f"connection.failed.authentication.delay.ms={delay_ms} must be below "
        f"connections.max.idle.ms={idle_ms}",
    )


def _check_listeners(config: "BrokerConfig") -> None:
    check_ports(config.bound_listeners)
    names = {listener.name for listener in config.bound_listeners}
    for advertised in (config.advertised_broker_listeners, config.advertised_controller_listeners):
        for listener in advertised:
            _require(
                listener.host != WILDCARD_HOST,
                f"advertised.listeners: clients cannot connect to {WILDCARD_HOST}; "
                f"set an address at which {listener.name} is reachable",
            )
    for name in config.early_start_listeners or ():
        _require(
            name.upper() in names | set(config.controller_names),
            f"early.start.listeners: {name} is not among the listeners",
        )
    if config.is_broker:
        _check_broker_listeners(config, names)


def _check_broker_listeners(config: "BrokerConfig", names: set[str]) -> None:
    advertised = [listener.name for listener in config.advertised_broker_listeners]
    _require(
        advertised,
        "listeners: a broker needs a listener that is not in controller.listener.names",
    )
    strange = [name for name in advertised if name not in names]
    _require(not strange, f"advertised.listeners: {', '.join(strange)} is not in listeners")
    _require(
        config.inter_broker_name in advertised,
        f"inter.broker.listener.name: {config.inter_broker_name} is not one of "
        f"{', '.join(advertised)}",
    )


def _check_roles(config: "BrokerConfig") -> None:
    voters = {voter.node_id for voter in config.voters}
    names = config.controller_names
    _require(
        voters or config.controller_quorum_bootstrap_servers,
        "controller.quorum.bootstrap.servers or controller.quorum.voters must name the controllers",
    )
    if config.is_controller:
        _require(
            not voters or config.node_id in voters,
            f"controller.quorum.voters lacks node.id={config.node_id}, which is a controller",
        )
        bound = {listener.name for listener in config.bound_listeners}
        strange = [name for name in names if name not in bound]
        _require(
            not strange, f"controller.listener.names: {', '.join(strange)} is not in listeners"
        )
        _require(
            config.is_broker or bound == set(names),
            "listeners: a node that is only a controller must have only the listeners of "
            "controller.listener.names",
        )
        return
    _require(
        config.node_id not in voters,
        f"controller.quorum.voters has node.id={config.node_id}, which is not a controller",
    )
    _require(
        not config.controller_listeners,
        "listeners: a node that is not a controller must have none of controller.listener.names",
    )
    _require(
        not config.controller_quorum_auto_join_enable,
        "controller.quorum.auto.join.enable=true is only for controllers",
    )
    strange = [name for name in names if name not in config.security_protocols]
    _require(
        not strange, f"listener.security.protocol.map has no protocol for {', '.join(strange)}"
    )


def _check_security(config: "BrokerConfig") -> None:
    protocol = config.security_protocols[config.inter_broker_name] if config.is_broker else None
    if protocol in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}:
        mechanisms = config.of_listener(config.inter_broker_name, "sasl.enabled.mechanisms")
        _require(
            config.sasl_mechanism_inter_broker_protocol in mechanisms,
            f"sasl.mechanism.inter.broker.protocol={config.sasl_mechanism_inter_broker_protocol} "
            "is not in sasl.enabled.mechanisms",
        )


def _check_groups(config: "BrokerConfig") -> None:
    _require(
        "classic" in config.group_coordinator_rebalance_protocols,
        "group.coordinator.rebalance.protocols: classic cannot be left out",
    )
    _require(
        len(config.group_share_assignors) == 1,
        "group.share.assignors: exactly one assignor is possible",
    )


_CHECKS: tuple[Callable[["BrokerConfig"], None], ...] = (
    _check_identity,
    _check_logs,
    _check_connections,
    _check_roles,
    _check_listeners,
    _check_security,
    _check_groups,
    _check_order,
)
