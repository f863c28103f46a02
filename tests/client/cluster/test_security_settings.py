"""Wrong security settings raise before the first connection."""

from pathlib import Path

import pytest

from moldau.client.cluster.settings import client_settings
from moldau.client.errors import ConfigError

NOT_PEM = str(Path(__file__).parents[1] / "conftest.py")
LOGIN = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
TLS = {"security.protocol": "SSL"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    "jaas",
    [
        f'{MODULE} required username="al ice" password="a\\"b;c";',
        f"{MODULE} required\n username='al ice'\n password='a\"b;c' ;\n",
        f'{MODULE} required password="a\\"b;c" username = "al ice" ;',
    ],
)
def test_credentials_are_read_as_java_writes_them(jaas: str) -> None:
    login = client_settings("h:1", LOGIN | {"sasl.jaas.config": jaas}).security.login
    assert login is not None
    assert (login.username, login.password) == ("al ice", 'a"b;c')


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (LOGIN, "SASL PLAIN needs sasl.username and sasl.password"),
        (LOGIN | {"sasl.username": "alice"}, "needs sasl.username and sasl.password"),
        (LOGIN | {"sasl.jaas.config": "alice secret"}, "is not of the form"),
        (LOGIN | {"sasl.jaas.config": f"{MODULE} required user=x;"}, "needs sasl.username"),
        (
            LOGIN | {"sasl.jaas.config": f"{MODULE} required;", "sasl.username": "x"},
            "give one of them",
        ),
        (LOGIN | {"sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism=OAUTHBEARER is not supported"),
        ({"security.protocol": "TLS"}, "String must be one of"),
        (TLS | {"ssl.ca.location": "/no/such/file"}, "No such file or directory"),
        (TLS | {"ssl.enabled.protocols": "TLSv1.1"}, "there are TLSv1.2, TLSv1.3"),
        (TLS | {"ssl.endpoint.identification.algorithm": "LDAP"}, "write https, or nothing"),
        (TLS | {"ssl.cipher.suites": "NO_SUCH_SUITE"}, "names no suite of OpenSSL"),
        (TLS | {"ssl.truststore.certificates": "-----BEGIN NONSENSE"}, "holds no certificate"),
        (TLS | {"ssl.truststore.type": "PKCS12"}, "only PEM is supported"),
        (TLS | {"ssl.keystore.key": "-----BEGIN NONSENSE"}, "give both, or none"),
        (
            TLS | {"ssl.keystore.location": NOT_PEM},
            "is not a PEM",
        ),
    ],
)
def test_wrong_settings_are_an_error_of_one_line(settings: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client_settings("h:1", settings)
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_java_key_store_is_refused_with_the_command_to_convert_it(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    with pytest.raises(ConfigError, match="is not a PEM file; `openssl pkcs12"):
        client_settings("h:1", TLS | {"ssl.truststore.location": str(store)})


def test_secrets_are_not_shown() -> None:
    settings = client_settings("h:1", LOGIN | {"sasl.username": "a", "sasl.password": "sesame"})
    assert "sesame" not in repr(settings)
