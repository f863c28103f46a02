"""Parses regular expressions in RE2's syntax, as Kafka accepts them from clients: everything that
can be matched without backtracking.
"""

import re
from enum import Enum, auto
from typing import NamedTuple, NoReturn, TypeAlias

from moldau.core.patterns.characters import (
    CharTest,
    any_case,
    anything,
    class_of_letter,
    either,
    none_of,
    not_a_line_end,
    one_of,
    posix_class,
    unicode_class,
    within,
)

LENGTH_MAX = 10_000
DEPTH_MAX = 100
REPEATS_MAX = 1_000

_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX = frozenset("0123456789abcdefABCDEF")
_OCTAL = frozenset("01234567")
_COUNTS = re.compile(r"\{(\d{1,9})(,)?(\d{1,9})?\}", re.ASCII)
_NAMED = re.compile(r"P?<(\w+)>", re.ASCII)


class PatternError(ValueError):
    """The pattern is invalid; the message says why and where."""


class Anchor(Enum):
    """A condition between two characters."""

    TEXT_START = auto()
    TEXT_END = auto()
    LINE_START = auto()
    LINE_END = auto()
    WORD_EDGE = auto()
    NOT_WORD_EDGE = auto()


class Character(NamedTuple):
    test: CharTest


class Between(NamedTuple):
    anchor: Anchor


class Sequence(NamedTuple):
    parts: "tuple[Node, ...]"


class Choice(NamedTuple):
    ways: "tuple[Node, ...]"


class Repeat(NamedTuple):
    part: "Node"
    least: int
    most: int | None
    """None for no limit."""


Node: TypeAlias = Character | Between | Sequence | Choice | Repeat

_ANCHORS = {
    "A": Anchor.TEXT_START,
    "z": Anchor.TEXT_END,
    "b": Anchor.WORD_EDGE,
    "B": Anchor.NOT_WORD_EDGE,
}
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class Flags(NamedTuple):
    any_case: bool = False
    dot_matches_all: bool = False
    multiline: bool = False
    ungreedy: bool = False
    """Has no effect on matches of the whole text."""


_FLAG_NAMES = {"i": "any_case", "s": "dot_matches_all", "m": "multiline", "U": "ungreedy"}


def parse_pattern(text: str) -> Node:
    """Raises PatternError."""
    if len(text) > LENGTH_MAX:
        raise PatternError(f"longer than {LENGTH_MAX} characters")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags = Flags()
        self._names: set[str] = set()

    def whole(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            self._refuse("unmatched )")
        return node

    # Reading characters.

    def _refuse(self, problem: str) -> NoReturn:
        raise PatternError(f"{problem} near index {self._at}")

    def _peek(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def _take(self) -> str:
        if self._at >= len(self._text):
            self._refuse("unexpected end")
        self._at += 1
        return self._text[self._at - 1]

    def _skip(self, expected: str) -> bool:
        if self._peek(len(expected)) != expected:
            return False
        self._at += len(expected)
        return True

    def _until(self, end: str) -> str:
        end_at = self._text.find(end, self._at)
        if end_at < 0:
            self._refuse(f"{end} is missing")
        content = self._text[self._at : end_at]
        self._at = end_at + len(end)
        return content

    # Structure.

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._refuse(f"nested deeper than {DEPTH_MAX}")
        # A flag that is set inside a group ends with it.
        flags = self._flags
        ways = [self._sequence()]
        while self._skip("|"):
            ways.append(self._sequence())
        self._flags = flags
        self._depth -= 1
        return ways[0] if len(ways) == 1 else Choice(tuple(ways))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in {"", "|", ")"}:
            *whole, last = self._atoms()
            parts += [*whole, self._quantified(last)]
        return Sequence(tuple(parts))

    def _quantified(self, part: Node) -> Node:
        counts = self._counts()
        if counts is None:
            return part
        # Reluctant and greedy are the same for matches of the whole text.
        self._skip("?")
        if self._counts() is not None:
            self._refuse("a repetition of a repetition")
        return Repeat(part, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        """None if no repetition follows."""
        symbol = self._peek()
        if symbol in _QUANTIFIERS:
            self._at += 1
            return _QUANTIFIERS[symbol]
        # Braces without counts are literal.
        counts = _COUNTS.match(self._text, self._at)
        if counts is None:
            return None
        least, upper = int(counts[1]), counts[3]
        if upper is not None and counts[2] is None:
            return None
        self._at = counts.end()
        most = least if not counts[2] else int(upper) if upper else None
        if max(least, most or 0) > REPEATS_MAX or (most is not None and most < least):
            self._refuse("illegal repetition counts")
        return least, most

    def _atoms(self) -> list[Node]:
        """One atom, or several for quoted text."""
        if self._counts() is not None:
            self._refuse("a repetition of nothing")
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return [Character(self._class())]
            case ".":
                whole = self._flags.dot_matches_all
                return [Character(anything if whole else not_a_line_end)]
            case "^":
                return [Between(Anchor.LINE_START if self._flags.multiline else Anchor.TEXT_START)]
            case "$":
                return [Between(Anchor.LINE_END if self._flags.multiline else Anchor.TEXT_END)]
            case "\\":
                return self._escaped()
            case _:
                return [self._literal(character)]

    def _literal(self, character: str) -> Node:
        return Character(self._with_case(one_of(character)))

    def _with_case(self, test: CharTest) -> CharTest:
        return any_case(test) if self._flags.any_case else test

    def _group(self) -> list[Node]:
        flags = self._flags
        if self._skip("?"):
            named = _NAMED.match(self._text, self._at)
            if named is not None:
                if named[1] in self._names:
                    self._refuse(f"a second group '{named[1]}'")
                self._names.add(named[1])
                self._at = named.end()
            elif self._inline_flags():
                # Flags hold for the rest of the enclosing group.
                return [Sequence(())]
        inner = self._choice()
        if not self._skip(")"):
            self._refuse("unclosed group")
        self._flags = flags
        return [inner]

    def _inline_flags(self) -> bool:
        """True if the group only sets flags, False if a group with these flags begins."""
        value, is_complete = True, True
        while (letter := self._take()) not in {":", ")"}:
            if letter == "-" and value:
                value, is_complete = False, False
            elif letter in _FLAG_NAMES:
                self._flags = self._flags._replace(**{_FLAG_NAMES[letter]: value})
                is_complete = True
            else:
                self._refuse(f"unknown kind of group '?{letter}'")
        if not is_complete:
            self._refuse("flags are missing")
        return letter == ")"

    # After a backslash.

    def _escaped(self) -> list[Node]:
        if self._skip("Q"):
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : len(self._text) if end < 0 else end]
            self._at = len(self._text) if end < 0 else end + 2
            return [self._literal(character) for character in quoted] or [Sequence(())]
        letter = self._peek()
        if letter in _ANCHORS:
            self._at += 1
            return [Between(_ANCHORS[letter])]
        test = self._escaped_class()
        if test is not None:
            return [Character(self._with_case(test))]
        return [self._literal(self._escaped_character())]

    def _escaped_class(self) -> CharTest | None:
        letter = self._peek()
        if letter in {"p", "P"}:
            self._at += 1
            name = self._until("}") if self._skip("{") else self._take()
            test = unicode_class(name.removeprefix("^"))
            if test is None:
                self._refuse(f"unknown class '{name}'")
            is_negated = (letter == "P") != name.startswith("^")
            return none_of(test) if is_negated else test
        test = class_of_letter(letter) if letter else None
        if test is not None:
            self._at += 1
        return test

    def _escaped_character(self) -> str:
        letter = self._take()
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x":
            return self._code(self._until("}") if self._skip("{") else self._digits(2))
        if letter == "0" or (letter in _OCTAL and self._peek() in _OCTAL):
            digits = letter
            while len(digits) < 3 and self._peek() in _OCTAL:
                digits += self._take()
            return chr(int(digits, 8))
        # This includes backreferences, which are not supported.
        if not letter.isascii() or letter.isalnum():
            self._refuse(f"unknown escape \\{letter}")
        return letter

    def _digits(self, count: int) -> str:
        return "".join(self._take() for _ in range(count))

    def _code(self, digits: str) -> str:
        if not 1 <= len(digits) <= 8 or not _HEX.issuperset(digits) or int(digits, 16) > 0x10FFFF:
            self._refuse("illegal character code")
        return chr(int(digits, 16))

    # Between brackets.

    def _class(self) -> CharTest:
        is_negated = self._skip("^")
        tests: list[CharTest] = []
        # A first `]` is literal.
        while not tests or not self._skip("]"):
            tests.append(self._class_member())
        test = either(tests)
        if not is_negated:
            return self._with_case(test)
        return none_of(self._with_case(test))

    def _class_member(self) -> CharTest:
        if self._peek(2) == "[:" and ":]" in self._text[self._at + 2 :]:
            self._at += 2
            name = self._until(":]")
            posix = posix_class(name)
            if posix is None:
                self._refuse(f"unknown class '{name}'")
            return posix
        first = self._take()
        if first == "\\":
            test = self._escaped_class()
            if test is not None:
                return test
            first = self._escaped_character()
        if self._peek() != "-" or self._peek(2) == "-]":
            return one_of(first)
        self._at += 1
        last = self._take()
        if last == "\\":
            last = self._escaped_character()
        if last < first:
            self._refuse("illegal character range")
        return within(first, last)
