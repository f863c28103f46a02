"""A client's authentication by SASL, with the names of librdkafka in addition to Kafka's."""

from functools import partial

from moldau.config.broker_settings.oauth import OauthSettings
from moldau.config.broker_settings.sasl import SaslSettings
from moldau.config.checks import between
from moldau.config.client_settings.declare import declared_from_broker
from moldau.config.schema import LOW, SettingGroup, setting
from moldau.config.values import BOOLEAN, PASSWORD, STRING

_sasl = partial(declared_from_broker, SaslSettings.declared | OauthSettings.declared)


class ClientSaslSettings(SettingGroup):
    sasl_mechanism: str = setting(
        "sasl.mechanism",
        STRING,
        "GSSAPI",
        "The SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
        has_effect=True,
    )
    sasl_username: str | None = setting(
        "sasl.username",
        STRING,
        None,
        "The user for PLAIN and SCRAM; replaces sasl.jaas.config of Kafka's own clients.",
        has_effect=True,
    )
    sasl_password: str | None = setting(
        "sasl.password", PASSWORD, None, "The password of sasl.username.", has_effect=True
    )
    security_providers: str | None = _sasl("security.providers")
    sasl_client_callback_handler_class: str | None = _sasl("sasl.client.callback.handler.class")
    sasl_jaas_config: str | None = _sasl("sasl.jaas.config", has_effect=True)
    sasl_kerberos_kinit_cmd: str = _sasl("sasl.kerberos.kinit.cmd", LOW)
    sasl_kerberos_min_time_before_relogin: int = _sasl("sasl.kerberos.min.time.before.relogin", LOW)
    sasl_kerberos_service_name: str | None = _sasl("sasl.kerberos.service.name")
    sasl_kerberos_ticket_renew_jitter: float = _sasl("sasl.kerberos.ticket.renew.jitter", LOW)
    sasl_kerberos_ticket_renew_window_factor: float = _sasl(
        "sasl.kerberos.ticket.renew.window.factor", LOW
    )
    sasl_login_callback_handler_class: str | None = _sasl("sasl.login.callback.handler.class")
    sasl_login_class: str | None = _sasl("sasl.login.class")
    sasl_login_connect_timeout_ms: int | None = _sasl("sasl.login.connect.timeout.ms")
    sasl_login_read_timeout_ms: int | None = _sasl("sasl.login.read.timeout.ms")
    sasl_login_refresh_buffer_seconds: int = _sasl(
        "sasl.login.refresh.buffer.seconds", LOW, check=between(0, 3600)
    )
    sasl_login_refresh_min_period_seconds: int = _sasl(
        "sasl.login.refresh.min.period.seconds", LOW, check=between(0, 900)
    )
    sasl_login_refresh_window_factor: float = _sasl(
        "sasl.login.refresh.window.factor", LOW, check=between(0.5, 1.0)
    )
    sasl_login_refresh_window_jitter: float = _sasl(
        "sasl.login.refresh.window.jitter", LOW, check=between(0.0, 0.25)
    )
    sasl_login_retry_backoff_max_ms: int = _sasl("sasl.login.retry.backoff.max.ms")
    sasl_login_retry_backoff_ms: int = _sasl("sasl.login.retry.backoff.ms")
    sasl_oauthbearer_header_urlencode: bool = setting(
        "sasl.oauthbearer.header.urlencode",
        BOOLEAN,
        False,
        "Whether id and secret are URL-encoded in the request for a token.",
        importance=LOW,
    )
    sasl_oauthbearer_assertion_algorithm: str = _sasl("sasl.oauthbearer.assertion.algorithm")
    sasl_oauthbearer_assertion_claim_aud: str | None = _sasl("sasl.oauthbearer.assertion.claim.aud")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = _sasl(
        "sasl.oauthbearer.assertion.claim.exp.seconds"
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = _sasl("sasl.oauthbearer.assertion.claim.iss")
    sasl_oauthbearer_assertion_claim_jti_include: bool = _sasl(
        "sasl.oauthbearer.assertion.claim.jti.include"
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = _sasl(
        "sasl.oauthbearer.assertion.claim.nbf.seconds"
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = _sasl("sasl.oauthbearer.assertion.claim.sub")
    sasl_oauthbearer_assertion_file: str | None = _sasl("sasl.oauthbearer.assertion.file")
    sasl_oauthbearer_assertion_private_key_file: str | None = _sasl(
        "sasl.oauthbearer.assertion.private.key.file"
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = _sasl(
        "sasl.oauthbearer.assertion.private.key.passphrase"
    )
    sasl_oauthbearer_assertion_template_file: str | None = _sasl(
        "sasl.oauthbearer.assertion.template.file"
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = _sasl(
        "sasl.oauthbearer.client.credentials.client.id"
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = _sasl(
        "sasl.oauthbearer.client.credentials.client.secret"
    )
    sasl_oauthbearer_clock_skew_seconds: int = _sasl("sasl.oauthbearer.clock.skew.seconds")
    sasl_oauthbearer_expected_audience: tuple[str, ...] = _sasl(
        "sasl.oauthbearer.expected.audience"
    )
    sasl_oauthbearer_expected_issuer: str | None = _sasl("sasl.oauthbearer.expected.issuer")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _sasl(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms"
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = _sasl(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = _sasl(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = _sasl("sasl.oauthbearer.jwks.endpoint.url")
    sasl_oauthbearer_jwt_retriever_class: str = _sasl("sasl.oauthbearer.jwt.retriever.class")
    sasl_oauthbearer_jwt_validator_class: str = _sasl("sasl.oauthbearer.jwt.validator.class")
    sasl_oauthbearer_scope: str | None = _sasl("sasl.oauthbearer.scope")
    sasl_oauthbearer_scope_claim_name: str = _sasl("sasl.oauthbearer.scope.claim.name")
    sasl_oauthbearer_sub_claim_name: str = _sasl("sasl.oauthbearer.sub.claim.name")
    sasl_oauthbearer_token_endpoint_url: str | None = _sasl("sasl.oauthbearer.token.endpoint.url")
