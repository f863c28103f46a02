"""Every fact about settings of Apache Kafka 4.3.1 against our declarations: nothing is missing, and
type, default, bounds, importance, update mode and synonyms are Kafka's.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from moldau.config.broker import BrokerConfig
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
}
ALL = [(group, fact) for group in DECLARED for fact in FACTS[group]]
# Rules that are neither a range nor a choice of words; tests of their own are in test_values.py.
OTHER_RULES = {
    "non-null string",
    "non-empty string",
    "non-empty list",
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    "[latest, earliest, by_duration:PnDTnHnMn.nS]",
}
RANGE = re.compile(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?")
WORDS = re.compile(r"(\(case insensitive\) )?\[([\w, ]+)\]")


def facts(rule: re.Pattern[str] | None = None) -> pytest.MarkDecorator:
    """All facts, or those whose values are described by a rule."""
    chosen = [
        (group, fact)
        for group, fact in ALL
        if rule is None or rule.fullmatch(fact.get("valid", ""))
    ]
    names = [f"{group}-{fact['name']}" for group, fact in chosen]
    return pytest.mark.parametrize(("group", "fact"), chosen, ids=names)


def accepts(setting: Setting, text: str) -> bool:
    try:
        setting.parse(text)
    except KafkaError:
        return False
    return True


@pytest.mark.parametrize("group", DECLARED)
def test_no_setting_is_missing_or_invented(group: str) -> None:
    ours = {name for name in DECLARED[group] if not name.startswith("moldau.")}
    assert ours == {fact["name"] for fact in FACTS[group]}


def test_every_rule_is_looked_at() -> None:
    rules = {fact["valid"] for _, fact in ALL if "valid" in fact}
    assert {rule for rule in rules if not RANGE.fullmatch(rule) and not WORDS.fullmatch(rule)} == (
        OTHER_RULES
    )


@facts()
def test_type_default_and_importance_are_kafkas(group: str, fact: dict[str, Any]) -> None:
    setting = DECLARED[group][fact["name"]]
    assert setting.kind.name.lower() == fact["type"]
    assert setting.importance.name.lower() == fact["importance"]
    assert setting.is_internal == fact.get("internal", False)
    default = fact["default"]
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
def test_allowed_words_are_kafkas(group: str, fact: dict[str, Any]) -> None:
    setting = DECLARED[group][fact["name"]]
    found = WORDS.fullmatch(fact["valid"])
    assert found is not None
    for word in found[2].split(", "):
        assert accepts(setting, word)
        assert accepts(setting, word.swapcase()) == (found[1] is not None)
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
