"""Addresses and property files in the forms that users write."""

import pytest

from moldau.client.cluster.settings import client_settings, parse_addresses
from moldau.client.errors import ClientError
from moldau.net.request_channel import Address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        ("localhost", [Address("localhost", 9092)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9192", [Address("::1", 9192)]),
        ("[fe80::1]", [Address("fe80::1", 9092)]),
        ("PLAINTEXT://broker-1.example:9093", [Address("broker-1.example", 9093)]),
    ],
)
def test_addresses_are_read(text: str, expected: list[Address]) -> None:
    assert list(parse_addresses(text)) == expected


@pytest.mark.parametrize(
    "text",
    ["", " , ", "host:", "host:port", "::1", "[::1", "host:70000", "host:0", "a b:1", ":9092"],
)
def test_a_wrong_address_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ClientError) as caught:
        parse_addresses(text)
    assert len(str(caught.value).splitlines()) == 1


def test_an_ipv6_address_is_shown_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_settings_come_from_properties_and_unknown_ones_are_ignored() -> None:
    given = {"client.id": "tool", "request.timeout.ms": "5000", "fetch.min.bytes": "7"}
    settings = client_settings("h:1", given)
    assert (settings.client_id, settings.request_timeout_ms) == ("tool", 5000)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("request.timeout.ms", "soon", "Not a number of type INT"),
        ("request.timeout.ms", "-1", "must be at least 0"),
        ("security.protocol", "SASL_SSL", "sasl.mechanism=GSSAPI is not supported"),
    ],
)
def test_impossible_settings_are_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        client_settings("h:1", {name: value})
