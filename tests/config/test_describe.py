"""DescribeConfigs. The interop suite compares it with a live Apache Kafka."""

from config.nodes import COMBINED

from moldau.config.broker import BrokerConfig
from moldau.config.describe import (
    Described,
    Source,
    Synonym,
    describe_broker,
    describe_broker_defaults,
    describe_consumer_group,
    describe_topic,
)
from moldau.config.dynamic import layered_config
from moldau.config.layers import Layers
from moldau.config.values import Kind

STATIC = BrokerConfig.parse(
    COMBINED
    | {
        "log.retention.minutes": "5",
        "ssl.key.password": "geheim",
        "super.users": "User:a",
        "listener.name.plaintext.max.connections": "9",
    }
).given


def by_name(rows: list[Described]) -> dict[str, Described]:
    return {row.name: row for row in rows}


def test_all_values_are_described_in_order() -> None:
    name = "log.cleaner.backoff.ms"
    config = layered_config(Layers({**STATIC, name: "1"}, {name: "2"}, {name: "3"}))
    row = by_name(describe_broker(config))[name]
    assert row.value == "3"
    assert row.source is Source.DYNAMIC_BROKER
    assert row.kind is Kind.LONG
    assert not row.is_read_only
    assert row.documentation
    assert row.synonyms == (
        Synonym(name, "3", Source.DYNAMIC_BROKER),
        Synonym(name, "2", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym(name, "1", Source.STATIC_BROKER),
        Synonym(name, "15000", Source.DEFAULT),
    )


def test_secrets_and_unknown_settings_are_not_shown() -> None:
    rows = by_name(describe_broker(BrokerConfig.parse(STATIC)))
    for name in ("ssl.key.password", "super.users"):
        assert rows[name].is_sensitive
        assert rows[name].value is None
        assert {synonym.value for synonym in rows[name].synonyms} == {None}
    assert rows["super.users"].kind == 0


def test_internal_settings_are_described_only_if_set() -> None:
    assert "unstable.api.versions.enable" not in by_name(
        describe_broker(BrokerConfig.parse(STATIC))
    )
    config = BrokerConfig.parse({**STATIC, "unstable.api.versions.enable": "false"})
    assert "unstable.api.versions.enable" in by_name(describe_broker(config))


def test_a_listeners_own_setting_is_described_first() -> None:
    rows = by_name(describe_broker(BrokerConfig.parse({**STATIC, "max.connections": "50"})))
    row = rows["listener.name.plaintext.max.connections"]
    assert row.value == "9"
    assert [(synonym.name, synonym.value) for synonym in row.synonyms] == [
        ("listener.name.plaintext.max.connections", "9"),
        ("max.connections", "50"),
        ("max.connections", "2147483647"),
    ]


def test_cluster_defaults_describe_only_what_is_set_for_all_brokers() -> None:
    config = layered_config(
        Layers(STATIC, {"message.max.bytes": "2"}, {"log.cleaner.threads": "2"})
    )
    assert describe_broker_defaults(config) == [
        Described(
            "message.max.bytes",
            "2",
            Source.DYNAMIC_DEFAULT_BROKER,
            (Synonym("message.max.bytes", "2", Source.DYNAMIC_DEFAULT_BROKER),),
            Kind.INT,
            documentation=BrokerConfig.declared["message.max.bytes"].doc,
        )
    ]


def test_topic_settings_have_the_brokers_synonyms() -> None:
    rows = by_name(describe_topic({"segment.ms": "7"}, BrokerConfig.parse(STATIC)))
    assert rows["segment.ms"].source is Source.TOPIC
    assert rows["segment.ms"].synonyms[0] == Synonym("segment.ms", "7", Source.TOPIC)
    assert rows["retention.ms"].value == "300000"
    assert rows["segment.bytes"].synonyms == (
        Synonym("log.segment.bytes", "1073741824", Source.DEFAULT),
    )
    assert "internal.segment.bytes" not in rows


def test_settings_of_another_version_are_kept_secret() -> None:
    row = by_name(describe_topic({"from.the.future": "1"}, BrokerConfig.parse(STATIC)))[
        "from.the.future"
    ]
    assert row.is_sensitive
    assert row.value is None


def test_a_groups_settings_always_have_a_default() -> None:
    rows = describe_consumer_group({}, BrokerConfig.parse(STATIC))
    assert all(row.synonyms for row in rows)
    assert {row.source for row in rows} == {Source.DEFAULT}
