"""Every fact about settings of Apache Kafka 4.3.1 against our declarations: nothing is missing, and
type, default, bounds, importance, update mode and synonyms are Kafka's.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from moldau.config.broker import BrokerConfig
from moldau.config.client_settings.admin import AdminConfig
from moldau.config.client_settings.consumer import ConsumerConfig
from moldau.config.client_settings.producer import ProducerConfig
from moldau.config.dynamic import DYNAMIC_SETTINGS
from moldau.config.group import GroupConfig
from moldau.config.log import LogConfig
from moldau.config.schema import Setting
from moldau.config.values import Kind
from moldau.protocol.errors import KafkaError

FACTS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "protocol" / "configs.json").read_text()
)
DECLARED = {
    "broker": BrokerConfig.declared,
    "topic": LogConfig.declared,
    "group": GroupConfig.declared,
    "producer": ProducerConfig.declared,
    "consumer": ConsumerConfig.declared,
    "admin": AdminConfig.declared,
}
CLIENTS = ["producer", "consumer", "admin"]
# Settings of clients that Kafka does not have; the names are librdkafka's.
OWN = {
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
}
# The case of its default differs from that of its allowed values.
ANY_CASE = {"share.acquire.mode"}
# Kafka's default is a class, or a class is required where bytes are enough here.
OTHER_DEFAULTS = {
    "key.serializer": None,
    "value.serializer": None,
    "key.deserializer": None,
    "value.deserializer": None,
    "partition.assignment.strategy": ("range", "cooperative-sticky"),
}
ALL = [(group, fact) for group in DECLARED for fact in FACTS[group]]
# Rules that are neither a range nor a choice of words; test_values.py tests them.
OTHER_RULES = {
    "non-null string",
    "non-empty string",
    "non-empty list",
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    "[latest, earliest, by_duration:PnDTnHnMn.nS]",
    "[latest, earliest, none, by_duration:PnDTnHnMn.nS]",
}
RANGE = re.compile(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?")
WORDS = re.compile(r"(\(case insensitive\) )?\[([\w, -]+)\]")


def facts(rule: re.Pattern[str] | None = None) -> pytest.MarkDecorator:
    """All facts, or those whose values are described by a rule."""
    chosen = [
        (group, fact)
        for group, fact in ALL
        if rule is None or rule.fullmatch(fact.get("valid", ""))
    ]
    names = [f"{group}-{fact['name']}" for group, fact in chosen]
    return pytest.mark.parametrize(("group", "fact"), chosen, ids=names)


def importances(group: str, name: str) -> set[str]:
    """Kafka's clients do not agree on the importance of some settings."""
    groups = CLIENTS if group in CLIENTS else [group]
    return {fact["importance"] for one in groups for fact in FACTS[one] if fact["name"] == name}


def accepts(setting: Setting, text: str) -> bool:
    try:
        setting.parse(text)
    except KafkaError:
        return False
    return True


@pytest.mark.parametrize("group", DECLARED)
def test_no_setting_is_missing_or_invented(group: str) -> None:
    ours = {name for name in DECLARED[group] if not name.startswith("moldau.")}
    assert ours - OWN == {fact["name"] for fact in FACTS[group]}


def test_every_rule_is_checked() -> None:
    rules = {fact["valid"] for _, fact in ALL if "valid" in fact}
    assert {rule for rule in rules if not RANGE.fullmatch(rule) and not WORDS.fullmatch(rule)} == (
        OTHER_RULES
    )


@facts()
def test_type_default_and_importance_are_kafkas(group: str, fact: dict[str, Any]) -> None:
    setting = DECLARED[group][fact["name"]]
    assert setting.kind.name.lower() == fact["type"]
    assert setting.importance.name.lower() in importances(group, fact["name"])
    assert setting.is_internal == fact.get("internal", False)
    default = OTHER_DEFAULTS.get(fact["name"], fact["default"])
    if isinstance(default, dict):
        assert default == {"required": True}
        assert setting.is_required
    else:
        assert not setting.is_required
        expected = tuple(default) if isinstance(default, list) else default
        assert setting.default == expected
        assert type(setting.default) is type(expected)


@facts(RANGE)
def test_bounds_are_kafkas(group: str, fact: dict[str, Any]) -> None:
    setting = DECLARED[group][fact["name"]]
    found = RANGE.fullmatch(fact["valid"])
    assert found is not None
    lowest, highest, exception = found.groups()
    step = 0.001 if setting.kind is Kind.DOUBLE else 1
    number = float if setting.kind is Kind.DOUBLE else int
    assert accepts(setting, lowest)
    assert not accepts(setting, str(number(float(lowest)) - step))
    if highest is None:
        assert accepts(setting, str(number(float(lowest)) + 1_000))
    else:
        assert accepts(setting, highest)
        assert not accepts(setting, str(number(float(highest)) + step))
    if exception is not None:
        assert accepts(setting, exception)


@facts(WORDS)
def test_allowed_values_are_kafkas(group: str, fact: dict[str, Any]) -> None:
    setting = DECLARED[group][fact["name"]]
    found = WORDS.fullmatch(fact["valid"])
    assert found is not None
    for word in found[2].split(", "):
        assert accepts(setting, word)
        if word != word.swapcase():
            is_any_case = found[1] is not None or fact["name"] in ANY_CASE
            assert accepts(setting, word.swapcase()) == is_any_case
    assert not accepts(setting, "no-such-word")


@pytest.mark.parametrize("fact", FACTS["broker"], ids=lambda fact: str(fact["name"]))
def test_update_modes_are_kafkas(fact: dict[str, Any]) -> None:
    assert BrokerConfig.declared[fact["name"]].mode == fact["update_mode"]
    assert (fact["name"] in DYNAMIC_SETTINGS) == (fact["update_mode"] != "read-only")


@pytest.mark.parametrize(
    ("group", "fact"), [(group, fact) for group, fact in ALL if group != "broker"]
)
def test_synonyms_are_kafkas(group: str, fact: dict[str, Any]) -> None:
    setting = DECLARED[group][fact["name"]]
    assert setting.synonyms == tuple(fact.get("broker_synonyms", ()))
    assert all(name in BrokerConfig.declared for name in setting.synonyms)


@pytest.mark.parametrize("group", DECLARED)
def test_attributes_are_the_names(group: str) -> None:
    for name, setting in DECLARED[group].items():
        assert setting.attribute == name.replace(".", "_")


@pytest.mark.parametrize("group", DECLARED)
def test_every_setting_is_documented_in_a_sentence(group: str) -> None:
    for setting in DECLARED[group].values():
        assert setting.doc.endswith((".", ".deleted."))
        assert setting.doc[0].isupper() or setting.doc[0].isdigit()
        assert len(setting.doc) < 250


def test_defaults_keep_their_own_rules() -> None:
    for declared in DECLARED.values():
        for setting in declared.values():
            if not setting.is_required:
                setting.verify(setting.default)
