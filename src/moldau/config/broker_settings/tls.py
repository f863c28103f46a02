"""TLS."""

from moldau.config.checks import one_of
from moldau.config.schema import LOW, PER_BROKER, SettingGroup, setting
from moldau.config.values import BOOLEAN, CLASS, LIST, PASSWORD, STRING


class TlsSettings(SettingGroup):
    ssl_allow_dn_changes: bool = setting(
        "ssl.allow.dn.changes",
        BOOLEAN,
        False,
        "Whether a new certificate may have a different name from the old one.",
        importance=LOW,
    )
    ssl_allow_san_changes: bool = setting(
        "ssl.allow.san.changes",
        BOOLEAN,
        False,
        "Whether a new certificate may lack alternative names of the old one.",
        importance=LOW,
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        LIST,
        (),
        "The cipher suites; empty allows what the TLS library allows.",
        mode=PER_BROKER,
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients have to show a certificate: required, requested or none.",
        check=one_of("required", "requested", "none"),
        mode=PER_BROKER,
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The enabled TLS versions.",
        mode=PER_BROKER,
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "How the name of a server is verified against its certificate; empty disables the check.",
        importance=LOW,
        mode=PER_BROKER,
    )
    ssl_engine_factory_class: str | None = setting(
        "ssl.engine.factory.class",
        CLASS,
        None,
        "The class that makes TLS engines.",
        importance=LOW,
        mode=PER_BROKER,
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password",
        PASSWORD,
        None,
        "The password of the private key.",
        mode=PER_BROKER,
    )
    ssl_keymanager_algorithm: str = setting(
        "ssl.keymanager.algorithm",
        STRING,
        "SunX509",
        "The algorithm that chooses keys.",
        mode=PER_BROKER,
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        "The certificates of this node, as PEM text.",
        mode=PER_BROKER,
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key",
        PASSWORD,
        None,
        "The private key of this node, as PEM text.",
        mode=PER_BROKER,
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        STRING,
        None,
        "The file that holds key and certificates of this node.",
        mode=PER_BROKER,
    )
    ssl_keystore_password: str | None = setting(
        "ssl.keystore.password",
        PASSWORD,
        None,
        "The password of the file in ssl.keystore.location.",
        mode=PER_BROKER,
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        STRING,
        "JKS",
        "The format of the file in ssl.keystore.location: JKS, PKCS12 or PEM.",
        mode=PER_BROKER,
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "Rules that map certificate names to short names; the first match applies.",
        importance=LOW,
    )
    ssl_protocol: str = setting(
        "ssl.protocol",
        STRING,
        "TLSv1.3",
        "The newest TLS version to use.",
        mode=PER_BROKER,
    )
    ssl_provider: str | None = setting(
        "ssl.provider",
        STRING,
        None,
        "The library that provides TLS.",
        mode=PER_BROKER,
    )
    ssl_secure_random_implementation: str | None = setting(
        "ssl.secure.random.implementation",
        STRING,
        None,
        "Where random numbers for TLS come from.",
        importance=LOW,
        mode=PER_BROKER,
    )
    ssl_trustmanager_algorithm: str = setting(
        "ssl.trustmanager.algorithm",
        STRING,
        "PKIX",
        "The algorithm that decides which certificates to trust.",
        mode=PER_BROKER,
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        "The certificates to trust, as PEM text.",
        mode=PER_BROKER,
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        STRING,
        None,
        "The file that holds the certificates to trust.",
        mode=PER_BROKER,
    )
    ssl_truststore_password: str | None = setting(
        "ssl.truststore.password",
        PASSWORD,
        None,
        "The password of the file of certificates to trust.",
        mode=PER_BROKER,
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        STRING,
        "JKS",
        "The format of the file of certificates to trust: JKS, PKCS12 or PEM.",
        mode=PER_BROKER,
    )
