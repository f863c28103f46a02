"""Clients' patterns: their meaning, and that no pattern takes long."""

import json
import re
from pathlib import Path

import pytest
from core.patterns.pattern_cases import NOT_HERE, PATTERNS, TEXTS, WRONG
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.patterns.matcher import Pattern, PatternTooCostlyError
from moldau.core.patterns.syntax import LENGTH_MAX, PatternError

# Recorded full matches of google-re2 1.1.20251105, which is not a dependency of ours.
MATCHES: dict[str, list[str]] = json.loads(Path(__file__).with_name("matches.json").read_text())
# Patterns that Python's `re` reads like RE2.
_pieces = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "(?:ab|b)", "()", "(?i:A)", r"\b", "^", "$"]
)
_quantifiers = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    def part() -> str:
        inner = draw(_pieces)
        if draw(st.booleans()):
            inner = f"({inner}|{draw(_pieces)}{draw(_pieces)})"
        quantifier = draw(_quantifiers)
        return f"(?:{inner}){quantifier}" if quantifier else inner

    return "".join(part() for _ in range(draw(st.integers(0, 5))))


@given(patterns(), st.lists(st.text("abAB1 ", max_size=8), min_size=1, max_size=8))
def test_simple_patterns_agree_with_other_engines(pattern: str, texts: list[str]) -> None:
    ours, theirs = Pattern(pattern), re.compile(pattern, re.ASCII)
    assert [ours.matches(text) for text in texts] == [
        theirs.fullmatch(text) is not None for text in texts
    ]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_agree_with_re2(pattern: str) -> None:
    found = Pattern(pattern)
    assert [text for text in TEXTS if found.matches(text)] == MATCHES[pattern]


@pytest.mark.parametrize("pattern", [*WRONG, *NOT_HERE, "a" * (LENGTH_MAX + 1)], ids=repr)
def test_unsupported_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(a|aa)*b", "(.*)(.*)(.*)(.*)(.*)b", "(a?){500}a{500}a*b"]
)
def test_no_pattern_backtracks(pattern: str) -> None:
    """Each of these keeps an engine that backtracks busy for years."""
    assert not Pattern(pattern).matches("a" * 2_000)
    assert Pattern(pattern).matches("a" * 2_000 + "b")


def test_a_pattern_that_costs_too_much_is_stopped() -> None:
    pattern = Pattern("(" + "a?" * 1_000 + "|b)*(a|b)*a(a|b){20}")
    texts = (format(number, "b").replace("0", "a").replace("1", "b") for number in range(10**9))
    with pytest.raises(PatternTooCostlyError):
        any(pattern.matches(text * 10 + "!") for text in texts)


def test_a_pattern_serves_many_texts() -> None:
    pattern = Pattern("billing-[0-9]+-(eu|us)")
    texts = [f"billing-{number}-{'eu' if number % 2 else 'asia'}" for number in range(10_000)]
    assert sum(pattern.matches(text) for text in texts) == 5_000
