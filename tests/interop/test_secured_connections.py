"""Our clients with Apache Kafka's secured listeners: TLS, certificates of both sides, SASL."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from interop.apache import ApacheOracle
from interop.secured_broker import (
    BRIEF_MS,
    KEY_PASSWORD,
    MECHANISMS,
    PASSWORD,
    USER,
    Certificates,
    SecuredBroker,
    make_certificates,
)

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.settings import admin_settings
from moldau.client.config import client_config
from moldau.client.errors import AuthenticationError
from moldau.config.client_settings.admin import AdminConfig
from moldau.protocol.errors import MoldauError

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(
    apache: ApacheOracle, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    with SecuredBroker(apache, tmp_path_factory.mktemp("secured"), certificates) as node:
        node.format()
        node.start()
        yield node


def cluster_at(address: str, **settings: Any) -> Cluster:
    settings = {"bootstrap_servers": address, "default_api_timeout_ms": 20_000} | settings
    return Cluster(admin_settings(client_config(AdminConfig, None, settings)))


async def brokers_at(address: str, **settings: Any) -> list[str]:
    async with cluster_at(address, **settings) as cluster:
        return [str(broker.address) for broker in (await cluster.brokers()).values()]


def login(mechanism: str = "PLAIN", password: str = PASSWORD, protocol: str = "") -> dict[str, Any]:
    return {
        "security_protocol": protocol or "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": USER,
        "sasl_password": password,
    }


async def test_tls_with_an_authority_that_is_trusted(
    broker: SecuredBroker, certificates: Certificates
) -> None:
    address = broker.secured_address("TLS")
    ways: list[dict[str, Any]] = [
        {"ssl_ca_location": str(certificates.authority)},
        {"ssl_truststore_location": str(certificates.authority), "ssl_truststore_type": "PEM"},
        {"ssl_truststore_certificates": certificates.authority.read_text()},
        {"ssl_ca_location": str(certificates.authority), "ssl_enabled_protocols": "TLSv1.2"},
    ]
    for way in ways:
        assert await brokers_at(address, security_protocol="SSL", **way) == [address]


async def test_an_untrusted_broker_is_refused(
    broker: SecuredBroker, certificates: Certificates
) -> None:
    address = broker.secured_address("TLS")
    for trust in ({}, {"ssl_ca_location": str(certificates.stranger)}):
        with pytest.raises(AuthenticationError, match="its certificate is not trusted"):
            await brokers_at(address, security_protocol="SSL", **trust)


async def test_the_name_in_the_certificate_is_verified(
    broker: SecuredBroker, certificates: Certificates
) -> None:
    address = broker.secured_address("TLS", "127.0.0.1")
    settings = {"security_protocol": "SSL", "ssl_ca_location": str(certificates.authority)}
    with pytest.raises(AuthenticationError, match=r"not valid for '127\.0\.0\.1'"):
        await brokers_at(address, **settings)
    assert await brokers_at(address, ssl_endpoint_identification_algorithm="", **settings)


async def test_a_client_certificate_is_sent(
    broker: SecuredBroker, certificates: Certificates
) -> None:
    address = broker.secured_address("MUTUAL")
    settings = {"security_protocol": "SSL", "ssl_ca_location": str(certificates.authority)}
    chain, key = certificates.client_certificate, certificates.client_key
    ways: list[dict[str, Any]] = [
        {"ssl_certificate_location": str(chain), "ssl_key_location": str(key)},
        {
            "ssl_certificate_location": str(chain),
            "ssl_key_location": str(certificates.client_locked_key),
            "ssl_key_password": KEY_PASSWORD,
        },
        {
            "ssl_keystore_certificate_chain": chain.read_text(),
            "ssl_keystore_key": key.read_text(),
            "ssl_keystore_type": "PEM",
        },
    ]
    for way in ways:
        assert await brokers_at(address, **settings, **way) == [address]
    with pytest.raises(AuthenticationError, match="may require a client certificate"):
        await brokers_at(address, **settings)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["LOGIN", "BOTH"])
async def test_a_client_with_the_password_logs_in(
    broker: SecuredBroker, certificates: Certificates, listener: str, mechanism: str
) -> None:
    address = broker.secured_address(listener)
    protocol = "SASL_SSL" if listener == "BOTH" else "SASL_PLAINTEXT"
    trust = {"ssl_ca_location": str(certificates.authority)}
    assert await brokers_at(address, **login(mechanism, protocol=protocol), **trust) == [address]
    with pytest.raises(AuthenticationError) as caught:
        await brokers_at(address, **login(mechanism, "wrong", protocol=protocol), **trust)
    assert "wrong" not in str(caught.value)
    assert address in str(caught.value)


async def test_kafkas_own_form_of_credentials_is_accepted(broker: SecuredBroker) -> None:
    secret = PASSWORD.replace("\\", "\\\\")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="{USER}" password="{secret}";'
    address = broker.secured_address("LOGIN")
    settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}
    assert await brokers_at(address, sasl_jaas_config=jaas, **settings) == [address]


async def test_an_expiring_login_is_renewed_under_load(broker: SecuredBroker) -> None:
    """The broker disconnects clients that do not reauthenticate in time."""
    async with cluster_at(broker.secured_address("BRIEF"), **login("SCRAM-SHA-256")) as cluster:
        first = await cluster.connection(None)
        until_ms = cluster.clock.mono_ms() + 3 * BRIEF_MS
        asked = 0
        while cluster.clock.mono_ms() < until_ms:
            await asyncio.gather(*(cluster.brokers() for _ in range(5)))
            asked += 5
        assert await cluster.connection(None) is first
        assert asked > 50


@pytest.mark.parametrize(
    ("listener", "settings", "says"),
    [
        ("TLS", {}, "speaks TLS"),
        ("LOGIN", {}, "it may require SASL"),
        ("PLAIN", {"security_protocol": "SSL"}, "closed the connection instead of speaking TLS"),
        ("PLAIN", login(), "has no SASL; security.protocol should be PLAINTEXT or SSL"),
    ],
)
async def test_a_wrong_security_protocol_is_reported(
    broker: SecuredBroker, listener: str, settings: dict[str, Any], says: str
) -> None:
    address = broker.address if listener == "PLAIN" else broker.secured_address(listener)
    with pytest.raises(MoldauError, match=says):
        await brokers_at(address, **settings)
