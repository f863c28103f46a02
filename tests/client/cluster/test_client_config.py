"""Settings of clients: both spellings, values and texts, and errors."""

import logging
from typing import Any

import pytest

from moldau.client.config import client_config
from moldau.client.errors import ConfigError
from moldau.config.client_settings.admin import AdminConfig
from moldau.config.client_settings.consumer import ConsumerConfig
from moldau.config.client_settings.producer import ProducerConfig


def test_both_spellings_mean_the_same() -> None:
    texts = {"linger.ms": "7", "acks": "1", "enable.idempotence": "false", "client.id": "me"}
    values = {"linger_ms": 7, "acks": 1, "enable_idempotence": False, "client_id": "me"}
    assert client_config(ProducerConfig, texts, {}) == client_config(ProducerConfig, None, values)


def test_defaults_are_kafkas_and_none_means_not_given() -> None:
    config = client_config(ConsumerConfig, {"group.id": None}, {"max_poll_records": None})
    assert (config.group_id, config.max_poll_records) == (None, 500)


def test_lists_may_be_given_as_lists_or_texts() -> None:
    text = client_config(AdminConfig, None, {"bootstrap_servers": "a:1, b:2"})
    assert text.bootstrap_servers == ("a:1", "b:2")
    assert client_config(AdminConfig, None, {"bootstrap_servers": ["a:1", "b:2"]}) == text


def test_functions_are_accepted_where_kafka_wants_a_class() -> None:
    config = client_config(ProducerConfig, None, {"value_serializer": str.encode})
    assert config.value_serializer("x") == b"x"


def test_a_password_keeps_its_spaces_and_is_not_shown() -> None:
    config = client_config(AdminConfig, {"sasl.password": " secret "}, {})
    assert config.sasl_password == " secret "
    assert "secret" not in repr(config)
    with pytest.raises(ConfigError) as caught:
        client_config(AdminConfig, {"sasl.password": 1234}, {})
    assert "1234" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "arguments", "says"),
    [
        ({"linger.sm": 5}, {}, "linger.sm: unknown setting; did you mean linger.ms?"),
        ({}, {"lingerms": 5}, "lingerms: unknown setting; did you mean linger_ms?"),
        (
            {"linger.ms": 5},
            {"linger_ms": 5},
            "linger_ms is given twice, also as config['linger.ms']",
        ),
        ({"linger.ms": 5.5}, {}, "linger.ms=5.5 is not a whole number of 64 bits"),
        ({"linger.ms": True}, {}, "linger.ms=True is not a whole number of 64 bits"),
        (
            {"linger.ms": -1},
            {},
            "Invalid value -1 for configuration linger.ms: Value must be at least 0",
        ),
        (
            {"linger.ms": "soon"},
            {},
            "Invalid value soon for configuration linger.ms: Not a number of type LONG",
        ),
        ({"batch.size": 2**31}, {}, "batch.size=2147483648 is not a whole number of 32 bits"),
        ({"enable.idempotence": 1}, {}, "enable.idempotence=1 is not true or false"),
        (
            {"acks": "some"},
            {},
            "Invalid value some for configuration acks: String must be one of: all, -1, 0, 1",
        ),
        ({"group.id": "g"}, {}, "group.id: unknown setting"),
    ],
)
def test_wrong_settings_are_an_error_of_one_line(
    config: dict[str, Any], arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        client_config(ProducerConfig, config, arguments)
    assert str(caught.value) == says


def test_a_setting_without_effect_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        client_config(AdminConfig, {"sasl.kerberos.service.name": "kafka"}, {"client_id": "x"})
    assert caplog.messages == ["sasl.kerberos.service.name has no effect in this client"]
