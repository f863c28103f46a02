"""Parsing and printing of values, as in Kafka."""

import pytest

from moldau.config.broker import BrokerConfig
from moldau.config.group import GroupConfig
from moldau.config.log import LogConfig
from moldau.config.schema import Setting
from moldau.config.values import Kind, text_of
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

ANY = {kind: Setting("any.setting", kind, None, "For a test.") for kind in Kind}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.INT, " +7 ", 7),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.INT, "0000000000000000000000000000001", 1),
        (Kind.SHORT, "32767", 32767),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.DOUBLE, "0.5", 0.5),
        (Kind.DOUBLE, "1e3", 1000.0),
        (Kind.DOUBLE, "7", 7.0),
        (Kind.DOUBLE, "2.5d", 2.5),
        (Kind.STRING, "  with blanks inside  ", "with blanks inside"),
        (Kind.STRING, "", ""),
        (Kind.LIST, " a , b,c ", ("a", "b", "c")),
        (Kind.LIST, "  ", ()),
        (Kind.LIST, "a,b,a", ("a", "b")),
        (Kind.CLASS, " org.example.Thing ", "org.example.Thing"),
        (Kind.PASSWORD, "geheim", "geheim"),
    ],
)
def test_texts_are_read_as_kafka_reads_them(kind: Kind, text: str, value: object) -> None:
    parsed = ANY[kind].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.BOOLEAN, "yes"),
        (Kind.BOOLEAN, "1"),
        (Kind.INT, ""),
        (Kind.INT, "-"),
        (Kind.INT, "1_000"),
        (Kind.INT, "1.0"),
        (Kind.INT, "0x10"),
        (Kind.INT, "٣"),
        (Kind.INT, "2147483648"),
        (Kind.INT, "9" * 10_000),
        (Kind.SHORT, "32768"),
        (Kind.LONG, "9223372036854775808"),
        (Kind.DOUBLE, "nan"),
        (Kind.DOUBLE, "1_0.0"),
        (Kind.DOUBLE, "."),
        (Kind.LIST, "a,,b"),
        (Kind.LIST, "a,b,"),
        (Kind.CLASS, " "),
    ],
)
def test_invalid_values_are_refused(kind: Kind, text: str) -> None:
    with pytest.raises(KafkaError, match=r"^INVALID_CONFIG: .*any\.setting") as refused:
        ANY[kind].parse(text)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert "\n" not in str(refused.value)


def test_the_value_of_a_secret_is_never_shown() -> None:
    config = BrokerConfig(ssl_key_password="geheim")
    assert "geheim" not in repr(config)
    assert "ssl_key_password" in repr(config)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (9_999_999.5, "9999999.5"),
        (99_999_999.9, "9.99999999E7"),
        (-1.25e-9, "-1.25E-9"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_numbers_are_printed_as_java_prints_them(value: float, text: str) -> None:
    assert text_of(value, Kind.DOUBLE) == text


def test_other_values_are_printed_as_kafka_prints_them() -> None:
    assert text_of(True, Kind.BOOLEAN) == "true"
    assert text_of(("a", "b"), Kind.LIST) == "a,b"
    assert text_of((), Kind.LIST) == ""
    assert text_of(-1, Kind.LONG) == "-1"
    assert text_of(None, Kind.STRING) is None


@pytest.mark.parametrize(
    ("setting", "good", "bad"),
    [
        (
            LogConfig.declared["leader.replication.throttled.replicas"],
            ["*", "0:1", "0:1,1:2", ""],
            ["0", "0:1,*", "a:b", "0:1:2"],
        ),
        (
            GroupConfig.declared["share.auto.offset.reset"],
            ["latest", "earliest", "by_duration:P1DT2H3M4.5S", "by_duration:PT1S"],
            ["", "none", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1S"],
        ),
        (
            BrokerConfig.declared["controller.quorum.voters"],
            ["", "1@host:9093", "1@a:1,2@[::1]:2"],
            ["host:9093", "1@host", "x@host:1", "1@host:70000", "1@:9093"],
        ),
        (
            BrokerConfig.declared["controller.quorum.bootstrap.servers"],
            ["", "host:1", "[::1]:1,127.0.0.1:2"],
            ["host", "host:", ":1", "host:1x"],
        ),
        (BrokerConfig.declared["log.dirs"], ["/a,/b"], ["", " "]),
        (BrokerConfig.declared["remote.log.storage.manager.class.name"], ["x.Y"], [""]),
        (BrokerConfig.declared["group.share.persister.class.name"], ["x.Y"], []),
    ],
    ids=lambda one: one.name if isinstance(one, Setting) else "",
)
def test_rules_that_are_not_ranges(setting: Setting, good: list[str], bad: list[str]) -> None:
    for text in good:
        setting.parse(text)
    for text in bad:
        with pytest.raises(KafkaError, match=setting.name):
            setting.parse(text)
