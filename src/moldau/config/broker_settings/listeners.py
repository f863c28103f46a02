"""Listeners, connections and requests."""

from moldau.config.checks import NOT_EMPTY, at_least, one_of
from moldau.config.schema import CLUSTER_WIDE, HIGH, LOW, PER_BROKER, SettingGroup, setting
from moldau.config.values import INT, KIB, LIST, LONG, MIB, MINUTE_MS, STRING
from moldau.types import INT32_MAX


class ListenerSettings(SettingGroup):
    advertised_listeners: tuple[str, ...] | None = setting(
        "advertised.listeners",
        LIST,
        None,
        "The addresses that clients and other brokers connect to, as NAME://host:port. By default"
        " these are the listeners.",
        check=NOT_EMPTY,
        importance=HIGH,
        has_effect=True,
    )
    background_threads: int = setting(
        "background.threads",
        INT,
        10,
        "How many threads do background work. Has no effect: a Moldau node has one main thread "
        "with helpers.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        LONG,
        10 * MINUTE_MS,
        "A connection without a request for this long is closed; a negative value keeps it open.",
        has_effect=True,
    )
    early_start_listeners: tuple[str, ...] | None = setting(
        "early.start.listeners",
        LIST,
        None,
        "Listeners that open before the authorizer is ready. By default these are the "
        "controller's listeners.",
        importance=HIGH,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        INT,
        55 * MIB,
        "The largest response to one fetch, even if the client allows more.",
        check=at_least(KIB),
        has_effect=True,
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name",
        STRING,
        None,
        "The listener for connections between brokers. By default security.inter.broker.protocol "
        "selects it.",
        has_effect=True,
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name uses, as NAME:PROTOCOL.",
        importance=LOW,
        mode=PER_BROKER,
        has_effect=True,
    )
    listeners: tuple[str, ...] = setting(
        "listeners",
        LIST,
        ("PLAINTEXT://:9092",),
        "The addresses that this node listens on, as NAME://host:port. An empty host is every "
        "address of the machine.",
        check=NOT_EMPTY,
        importance=HIGH,
        mode=PER_BROKER,
        has_effect=True,
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        INT,
        INT32_MAX,
        "How many connections per second are accepted; more have to wait, and are closed if too "
        "many wait already. A listener may have its own limit. The connections of other nodes to "
        "listeners of their own do not count against the limit of the node.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    max_connections: int = setting(
        "max.connections",
        INT,
        INT32_MAX,
        "How many connections may be open; more are closed. A listener may have its own limit. "
        "The number of file descriptors is also a limit, and so is one connection for each 16 KiB"
        " of moldau.inflight.bytes.max.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT,
        INT32_MAX,
        "How many connections one address may have open; more are closed. No address gets more "
        "than nine tenths of the node's connections.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Other limits for some addresses or hosts, as address:count.",
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1_000,
        "How many fetch sessions are kept.",
        check=at_least(0),
        has_effect=True,
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        INT,
        2_000,
        "How many partitions one response describes at most; clients request the rest again.",
        check=at_least(1),
        has_effect=True,
    )
    num_io_threads: int = setting(
        "num.io.threads",
        INT,
        8,
        "How many threads process requests. Has no effect: a Moldau node has one main thread.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
    )
    num_network_threads: int = setting(
        "num.network.threads",
        INT,
        3,
        "How many network threads each listener has. Has no effect: a Moldau node has one main "
        "thread.",
        check=at_least(1),
        importance=HIGH,
        mode=CLUSTER_WIDE,
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        LONG,
        -1,
        "How many bytes of requests may wait for their turn; -1 sets no limit. Moldau's own "
        "limits are moldau.inflight.bytes.max and moldau.connection.inflight.bytes.max.",
    )
    queued_max_requests: int = setting(
        "queued.max.requests",
        INT,
        500,
        "How many requests may wait for a thread. Has no effect: a Moldau node limits the bytes "
        "in flight instead.",
        check=at_least(1),
        importance=HIGH,
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        INT,
        30_000,
        "How long this node waits for the response to a request that it sends.",
        importance=HIGH,
        has_effect=True,
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "The security protocol between brokers if inter.broker.listener.name is not set.",
        check=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        has_effect=True,
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30_000,
        "The longest time that one attempt to connect to another node may take.",
        has_effect=True,
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        "How long the first attempt to connect to another node may take; it doubles with each "
        "failure.",
        has_effect=True,
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        INT,
        50,
        "How many connections wait in the kernel to be accepted. If it is not set, 1024.",
        check=at_least(1),
        has_effect=True,
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        INT,
        100 * KIB,
        "The receive buffer of the sockets. If it is not set or -1, the kernel chooses.",
        importance=HIGH,
        has_effect=True,
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        INT,
        100 * MIB,
        "The largest request; a larger one closes its connection.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        INT,
        100 * KIB,
        "The send buffer of the sockets. If it is not set or -1, the kernel chooses.",
        importance=HIGH,
        has_effect=True,
    )
