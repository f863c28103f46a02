"""Authentication and authorization: SASL, tokens, principals, the authorizer."""

from moldau.config.checks import at_least
from moldau.config.schema import HIGH, LOW, PER_BROKER, SettingGroup, setting
from moldau.config.values import (
    CLASS,
    DAY_MS,
    DOUBLE,
    HOUR_MS,
    INT,
    KIB,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
)


class SaslSettings(SettingGroup):
    authorizer_class_name: str = setting(
        "authorizer.class.name",
        STRING,
        "",
        "The class that authorizes requests. Empty allows everything to every client.",
        importance=LOW,
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        "How long a connection stays open after its authentication failed, to slow down "
        "guessing. Must be below connections.max.idle.ms.",
        check=at_least(0),
        importance=LOW,
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        LONG,
        0,
        "After this time a SASL client has to authenticate again or is disconnected; 0 never.",
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        HOUR_MS,
        "How often expired delegation tokens are removed.",
        check=at_least(1),
        importance=LOW,
    )
    delegation_token_expiry_time_ms: int = setting(
        "delegation.token.expiry.time.ms",
        LONG,
        DAY_MS,
        "How long a delegation token is valid before it has to be renewed.",
        check=at_least(1),
    )
    delegation_token_max_lifetime_ms: int = setting(
        "delegation.token.max.lifetime.ms",
        LONG,
        7 * DAY_MS,
        "How long a delegation token can be renewed at most.",
        check=at_least(1),
    )
    delegation_token_secret_key: str | None = setting(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "The secret that signs delegation tokens. It must be the same on all nodes.",
    )
    principal_builder_class: str = setting(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "The class that derives the principal from a connection's authentication.",
        mode=PER_BROKER,
    )
    sasl_client_callback_handler_class: str | None = setting(
        "sasl.client.callback.handler.class",
        CLASS,
        None,
        "The callback handler of a mechanism when this node is the client.",
    )
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        LIST,
        ("GSSAPI",),
        "The SASL mechanisms that clients may choose from.",
        mode=PER_BROKER,
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config",
        PASSWORD,
        None,
        "The login module and its options, as in a JAAS file. For listeners it needs the "
        "listener's and mechanism's prefix.",
        mode=PER_BROKER,
    )
    sasl_kerberos_kinit_cmd: str = setting(
        "sasl.kerberos.kinit.cmd",
        STRING,
        "/usr/bin/kinit",
        "The path of kinit.",
        mode=PER_BROKER,
    )
    sasl_kerberos_min_time_before_relogin: int = setting(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        60_000,
        "The shortest time between two attempts to renew a ticket.",
        mode=PER_BROKER,
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = setting(
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        ("DEFAULT",),
        "Rules that map Kerberos principals to short names; the first match applies.",
        mode=PER_BROKER,
    )
    sasl_kerberos_service_name: str | None = setting(
        "sasl.kerberos.service.name",
        STRING,
        None,
        "The Kerberos name that the brokers run as.",
        mode=PER_BROKER,
    )
    sasl_kerberos_ticket_renew_jitter: float = setting(
        "sasl.kerberos.ticket.renew.jitter",
        DOUBLE,
        0.05,
        "The random share added to the time of renewal.",
        mode=PER_BROKER,
    )
    sasl_kerberos_ticket_renew_window_factor: float = setting(
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        0.8,
        "The share of a ticket's life after which it is renewed.",
        mode=PER_BROKER,
    )
    sasl_login_callback_handler_class: str | None = setting(
        "sasl.login.callback.handler.class",
        CLASS,
        None,
        "The callback handler of the login.",
    )
    sasl_login_class: str | None = setting(
        "sasl.login.class",
        CLASS,
        None,
        "The class that logs in.",
    )
    sasl_login_connect_timeout_ms: int | None = setting(
        "sasl.login.connect.timeout.ms",
        INT,
        None,
        "How long connecting to the identity provider may take.",
        importance=LOW,
    )
    sasl_login_read_timeout_ms: int | None = setting(
        "sasl.login.read.timeout.ms",
        INT,
        None,
        "How long a response of the identity provider may take.",
        importance=LOW,
    )
    sasl_login_refresh_buffer_seconds: int = setting(
        "sasl.login.refresh.buffer.seconds",
        SHORT,
        300,
        "How long before its expiry a credential is renewed at the latest.",
        mode=PER_BROKER,
    )
    sasl_login_refresh_min_period_seconds: int = setting(
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        60,
        "How long a credential is used before it is renewed.",
        mode=PER_BROKER,
    )
    sasl_login_refresh_window_factor: float = setting(
        "sasl.login.refresh.window.factor",
        DOUBLE,
        0.8,
        "The share of a credential's life after which it is renewed.",
        mode=PER_BROKER,
    )
    sasl_login_refresh_window_jitter: float = setting(
        "sasl.login.refresh.window.jitter",
        DOUBLE,
        0.05,
        "The random share of a credential's life added to the time of renewal.",
        mode=PER_BROKER,
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        "sasl.login.retry.backoff.max.ms",
        LONG,
        10_000,
        "The longest pause between attempts to log in with the identity provider.",
        importance=LOW,
    )
    sasl_login_retry_backoff_ms: int = setting(
        "sasl.login.retry.backoff.ms",
        LONG,
        100,
        "The first pause between attempts to log in with the identity provider.",
        importance=LOW,
    )
    sasl_mechanism_controller_protocol: str = setting(
        "sasl.mechanism.controller.protocol",
        STRING,
        "GSSAPI",
        "The SASL mechanism for connections to controllers.",
        importance=HIGH,
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        "GSSAPI",
        "The SASL mechanism between brokers.",
        mode=PER_BROKER,
    )
    sasl_server_callback_handler_class: str | None = setting(
        "sasl.server.callback.handler.class",
        CLASS,
        None,
        "The callback handler that verifies a client's credentials. It needs the listener's and "
        "mechanism's prefix.",
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        INT,
        512 * KIB,
        "How large a message of a SASL exchange may be.",
    )
    security_providers: str | None = setting(
        "security.providers",
        STRING,
        None,
        "Classes that provide security algorithms.",
        importance=LOW,
    )
