"""For every setting that the reference calls effective, a test has seen the effect."""

import importlib
from collections.abc import Iterator
from pathlib import Path

from support.proofs import MARK, Owner, Proof

from moldau.config.broker import BrokerConfig
from moldau.config.group import GroupConfig
from moldau.config.log import LogConfig
from moldau.config.schema import Setting, UpdateMode

TESTS = Path(__file__).parents[1]
DECLARED: dict[Owner, dict[str, Setting]] = {
    "broker": BrokerConfig.declared,
    "topic": LogConfig.declared,
    "group": GroupConfig.declared,
}
# Effective settings that no test has seen at work, each with the reason. This may only shrink.
UNPROVEN: dict[Proof, str] = {}


def needed() -> set[Proof]:
    """At the start for all; at run time for those that Kafka lets change then."""
    proofs = set()
    for owner, declared in DECLARED.items():
        for name, setting in declared.items():
            if setting.has_effect:
                proofs.add(Proof(owner, name, is_change=False))
                if owner != "broker" or setting.mode is not UpdateMode.READ_ONLY:
                    proofs.add(Proof(owner, name, is_change=True))
    return proofs


def given() -> Iterator[Proof]:
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "from support.proofs import" in text and path != Path(__file__):
            module = importlib.import_module(
                ".".join(path.relative_to(TESTS).with_suffix("").parts)
            )
            for name, test in vars(module).items():
                if name.startswith("test_"):
                    yield from getattr(test, MARK, [])


def test_every_setting_with_an_effect_was_seen_to_have_it() -> None:
    """If this fails: write a test that fails without the setting, and mark it with `@proves`."""
    assert needed() - set(given()) - set(UNPROVEN) == set()


def test_what_is_proven_is_claimed() -> None:
    """A proof of a setting that claims no effect, or of a change that Kafka does not allow."""
    assert set(given()) - needed() == set()


def test_the_list_of_unproven_settings_only_shrinks() -> None:
    assert set(UNPROVEN) & set(given()) == set()
    assert set(UNPROVEN) - needed() == set()
