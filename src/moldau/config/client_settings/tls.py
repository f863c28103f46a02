"""A client's TLS settings, with the names of librdkafka in addition to Kafka's."""

from functools import partial

from moldau.config.broker_settings.tls import TlsSettings
from moldau.config.checks import one_of_any_case
from moldau.config.client_settings.declare import declared_from_broker
from moldau.config.schema import HIGH, LOW, SettingGroup, setting
from moldau.config.values import STRING

_tls = partial(declared_from_broker, TlsSettings.declared)


class ClientTlsSettings(SettingGroup):
    security_protocol: str = setting(
        "security.protocol",
        STRING,
        "PLAINTEXT",
        "The security protocol of connections to brokers: PLAINTEXT, SSL, SASL_PLAINTEXT or "
        "SASL_SSL.",
        check=one_of_any_case("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
        has_effect=True,
    )
    ssl_ca_location: str | None = setting(
        "ssl.ca.location",
        STRING,
        None,
        "A PEM file of the certificates to trust; by default those that this machine trusts.",
        has_effect=True,
    )
    ssl_certificate_location: str | None = setting(
        "ssl.certificate.location",
        STRING,
        None,
        "A PEM file of this client's certificates.",
        has_effect=True,
    )
    ssl_key_location: str | None = setting(
        "ssl.key.location",
        STRING,
        None,
        "A PEM file of this client's private key.",
        has_effect=True,
    )
    ssl_cipher_suites: tuple[str, ...] = _tls("ssl.cipher.suites", LOW, has_effect=True)
    ssl_enabled_protocols: tuple[str, ...] = _tls("ssl.enabled.protocols", has_effect=True)
    ssl_endpoint_identification_algorithm: str = _tls(
        "ssl.endpoint.identification.algorithm", has_effect=True
    )
    ssl_engine_factory_class: str | None = _tls("ssl.engine.factory.class")
    ssl_key_password: str | None = _tls("ssl.key.password", HIGH, has_effect=True)
    ssl_keymanager_algorithm: str = _tls("ssl.keymanager.algorithm", LOW)
    ssl_keystore_certificate_chain: str | None = _tls(
        "ssl.keystore.certificate.chain", HIGH, has_effect=True
    )
    ssl_keystore_key: str | None = _tls("ssl.keystore.key", HIGH, has_effect=True)
    ssl_keystore_location: str | None = _tls("ssl.keystore.location", HIGH, has_effect=True)
    ssl_keystore_password: str | None = _tls("ssl.keystore.password", HIGH)
    ssl_keystore_type: str = _tls("ssl.keystore.type", has_effect=True)
    ssl_protocol: str = _tls("ssl.protocol")
    ssl_provider: str | None = _tls("ssl.provider")
    ssl_secure_random_implementation: str | None = _tls("ssl.secure.random.implementation")
    ssl_trustmanager_algorithm: str = _tls("ssl.trustmanager.algorithm", LOW)
    ssl_truststore_certificates: str | None = _tls(
        "ssl.truststore.certificates", HIGH, has_effect=True
    )
    ssl_truststore_location: str | None = _tls("ssl.truststore.location", HIGH, has_effect=True)
    ssl_truststore_password: str | None = _tls("ssl.truststore.password", HIGH)
    ssl_truststore_type: str = _tls("ssl.truststore.type", has_effect=True)
