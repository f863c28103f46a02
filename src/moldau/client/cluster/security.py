"""The TLS context and SASL credentials of connections, from settings. Wrong files and names raise
here, before the first connection.
"""

import re
from typing import TYPE_CHECKING

from moldau.client.errors import ConfigError
from moldau.frozen import frozen

# ssl is imported when it is needed: most connections are plain, and command line tools must start
# quickly.
if TYPE_CHECKING:
    import ssl

    from moldau.config.client_settings.common import ClientConfig
    from moldau.core.client.login import Credentials

_PEM = "-----BEGIN "
_TLS_VERSIONS = {"TLSv1.2": "TLSv1_2", "TLSv1.3": "TLSv1_3"}
# Java's name of a login module, flags and then options up to the semicolon.
_JAAS = re.compile(r"\s*[\w.$]+\s+\w+\s+(.*?);\s*", re.DOTALL)
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\S+)\s*""")


@frozen
class Security:
    tls: "ssl.SSLContext | None" = None
    login: "Credentials | None" = None


def security_of(config: "ClientConfig") -> Security:
    protocol = config.security_protocol.upper()
    return Security(
        tls=_tls_context(config) if protocol.endswith("SSL") else None,
        login=_credentials(config) if protocol.startswith("SASL") else None,
    )


def _credentials(config: "ClientConfig") -> "Credentials":
    from moldau.core.client.login import MECHANISMS, Credentials

    mechanism = config.sasl_mechanism.upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism={mechanism} is not supported; choose from {', '.join(MECHANISMS)}"
        )
    username, password = config.sasl_username, config.sasl_password
    if config.sasl_jaas_config is not None:
        if username is not None or password is not None:
            raise ConfigError("sasl.jaas.config and sasl.username mean the same; give one of them")
        options = _jaas_options(config.sasl_jaas_config)
        username, password = options.get("username"), options.get("password")
    if not username or password is None:
        raise ConfigError(f"SASL {mechanism} needs sasl.username and sasl.password")
    return Credentials(mechanism, username, password)


def _jaas_options(text: str) -> dict[str, str]:
    match = _JAAS.fullmatch(text)
    if match is None:
        raise ConfigError(
            'sasl.jaas.config is not of the form: module.class required username="…" password="…";'
        )
    options = {}
    for name, value in _JAAS_OPTION.findall(match[1]):
        is_quoted = value[0] in "\"'"
        options[name] = re.sub(r"\\(.)", r"\1", value[1:-1]) if is_quoted else value
    return options


def _tls_context(config: "ClientConfig") -> "ssl.SSLContext":
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unknown = [name for name in config.ssl_enabled_protocols if name not in _TLS_VERSIONS]
    if unknown or not config.ssl_enabled_protocols:
        raise ConfigError(
            f"ssl.enabled.protocols={','.join(config.ssl_enabled_protocols)}: "
            f"there are {', '.join(_TLS_VERSIONS)}"
        )
    versions = [
        ssl.TLSVersion[_TLS_VERSIONS[name]] for name in sorted(config.ssl_enabled_protocols)
    ]
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    match config.ssl_endpoint_identification_algorithm.lower():
        case "https":
            context.check_hostname = True
        case "":
            context.check_hostname = False
        case other:
            raise ConfigError(
                f"ssl.endpoint.identification.algorithm={other}: "
                "write https, or nothing to disable the check"
            )
    if config.ssl_cipher_suites:
        try:
            context.set_ciphers(":".join(config.ssl_cipher_suites))
        except ssl.SSLError:
            raise ConfigError(
                "ssl.cipher.suites names no suite of OpenSSL; it takes OpenSSL's names, for TLS 1.2"
            ) from None
    _load_trusted_certificates(context, config)
    _load_own_certificate(context, config)
    return context


def _load_trusted_certificates(context: "ssl.SSLContext", config: "ClientConfig") -> None:
    """Loads the certificates that this client trusts."""
    import ssl

    given = {
        "ssl.ca.location": config.ssl_ca_location,
        "ssl.truststore.location": config.ssl_truststore_location,
    }
    _check_type("ssl.truststore.type", config.ssl_truststore_type)
    texts = {name: _pem(name, path) for name, path in given.items() if path is not None}
    if config.ssl_truststore_certificates is not None:
        texts["ssl.truststore.certificates"] = config.ssl_truststore_certificates
    if len(texts) > 1:
        raise ConfigError(f"{' and '.join(texts)} mean the same; give one of them")
    if not texts:
        context.load_default_certs()
        return
    ((name, text),) = texts.items()
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{name} holds no certificate that can be read") from None


def _load_own_certificate(context: "ssl.SSLContext", config: "ClientConfig") -> None:
    """Loads the certificate of this client, for brokers that require one."""
    import ssl
    import tempfile

    if config.ssl_keystore_key is not None or config.ssl_keystore_certificate_chain is not None:
        name = "ssl.keystore.certificate.chain and ssl.keystore.key"
        parts = [config.ssl_keystore_certificate_chain, config.ssl_keystore_key]
    elif config.ssl_keystore_location is not None:
        name = "ssl.keystore.location"
        _check_type("ssl.keystore.type", config.ssl_keystore_type)
        parts = [_pem(name, config.ssl_keystore_location)]
    elif config.ssl_certificate_location is not None or config.ssl_key_location is not None:
        name = "ssl.certificate.location and ssl.key.location"
        paths = [config.ssl_certificate_location, config.ssl_key_location]
        parts = [None if path is None else _pem(name, path) for path in paths]
    else:
        return
    if None in parts:
        raise ConfigError(f"{name}: give both, or none")
    password = config.ssl_key_password or ""
    # Python reads keys only from files. This one is readable by this user alone and removed at
    # once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="utf-8") as file:
        file.write("\n".join(part for part in parts if part is not None))
        file.flush()
        try:
            context.load_cert_chain(file.name, password=lambda: password)
        except (ssl.SSLError, ValueError, OSError):
            raise ConfigError(
                f"{name}: no certificate with a matching private key that ssl.key.password opens"
            ) from None


def _check_type(name: str, kind: str) -> None:
    # JKS is the default of Kafka's clients.
    if kind.upper() not in {"PEM", "JKS"}:
        raise ConfigError(f"{name}={kind}: only PEM is supported; `openssl pkcs12 -nodes` makes it")


def _pem(name: str, path: str) -> str:
    from pathlib import Path

    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}={path}: {error.strerror}") from None
    text = content.decode("utf-8", "replace")
    if _PEM not in text:
        raise ConfigError(
            f"{name}={path} is not a PEM file; `openssl pkcs12 -nodes` makes one of PKCS12, "
            "`keytool -importkeystore` makes PKCS12 of JKS"
        )
    return text
