"""SASL/OAUTHBEARER."""

from moldau.config.checks import between, one_of_any_case
from moldau.config.schema import HIGH, LOW, SettingGroup, setting
from moldau.config.values import BOOLEAN, CLASS, HOUR_MS, INT, LIST, LONG, PASSWORD, STRING


class OauthSettings(SettingGroup):
    sasl_oauthbearer_assertion_algorithm: str = setting(
        "sasl.oauthbearer.assertion.algorithm",
        STRING,
        "RS256",
        "The algorithm that signs assertions.",
        check=one_of_any_case("ES256", "RS256"),
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = setting(
        "sasl.oauthbearer.assertion.claim.aud",
        STRING,
        None,
        "The audience in an assertion.",
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = setting(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        INT,
        300,
        "How long an assertion is valid.",
        check=between(0, 86_400),
        importance=LOW,
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = setting(
        "sasl.oauthbearer.assertion.claim.iss",
        STRING,
        None,
        "The issuer in an assertion.",
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = setting(
        "sasl.oauthbearer.assertion.claim.jti.include",
        BOOLEAN,
        False,
        "Whether each assertion has a unique id.",
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = setting(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        INT,
        60,
        "How long before now an assertion is already valid.",
        check=between(0, 3_600),
        importance=LOW,
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = setting(
        "sasl.oauthbearer.assertion.claim.sub",
        STRING,
        None,
        "The subject in an assertion.",
    )
    sasl_oauthbearer_assertion_file: str | None = setting(
        "sasl.oauthbearer.assertion.file",
        STRING,
        None,
        "A file that holds a ready assertion.",
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = setting(
        "sasl.oauthbearer.assertion.private.key.file",
        STRING,
        None,
        "A file that holds the private key for assertions.",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = setting(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        PASSWORD,
        None,
        "The passphrase of the private key for assertions.",
    )
    sasl_oauthbearer_assertion_template_file: str | None = setting(
        "sasl.oauthbearer.assertion.template.file",
        STRING,
        None,
        "A file that holds headers and claims to start from.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        "sasl.oauthbearer.client.credentials.client.id",
        STRING,
        None,
        "The client's id for the client credentials grant.",
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        "sasl.oauthbearer.client.credentials.client.secret",
        PASSWORD,
        None,
        "The client's secret for the client credentials grant.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        30,
        "How far the clocks of the provider and of this node may differ.",
        importance=LOW,
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        LIST,
        (),
        "A token must have one of these audiences.",
        importance=HIGH,
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        "sasl.oauthbearer.expected.issuer",
        STRING,
        None,
        "The issuer that a token must have.",
        importance=HIGH,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        HOUR_MS,
        "How often the provider's keys are fetched again.",
        importance=LOW,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        10_000,
        "The longest pause between attempts to fetch the provider's keys.",
        importance=LOW,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        100,
        "The first pause between attempts to fetch the provider's keys.",
        importance=LOW,
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        None,
        "Where the provider's keys are: a URL or a file.",
    )
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "The class that gets tokens.",
    )
    sasl_oauthbearer_jwt_validator_class: str = setting(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "The class that checks tokens.",
    )
    sasl_oauthbearer_scope: str | None = setting(
        "sasl.oauthbearer.scope",
        STRING,
        None,
        "The requested scope.",
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        "sasl.oauthbearer.scope.claim.name",
        STRING,
        "scope",
        "The name of the claim that holds the scope.",
        importance=LOW,
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        "sub",
        "The name of the claim that holds the subject.",
        importance=LOW,
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        "sasl.oauthbearer.token.endpoint.url",
        STRING,
        None,
        "Where tokens are requested: a URL or a file.",
    )
