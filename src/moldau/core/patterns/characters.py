"""Character classes as tests of one character, with RE2's names."""

import string
import unicodedata
from collections.abc import Callable, Iterable

CharTest = Callable[[str], bool]

LINE_END = "\n"
WORD = frozenset(string.ascii_letters + string.digits + "_")

_BY_LETTER = {"d": frozenset(string.digits), "w": WORD, "s": frozenset("\t\n\f\r ")}
_POSIX: dict[str, frozenset[str]] = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, range(32))) | {"\x7f"},
    "digit": frozenset(string.digits),
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": frozenset(string.whitespace),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
# Unicode's general categories: one letter for a group, two for a category.
_CATEGORIES = {
    "L": "ultmo",
    "M": "nce",
    "N": "dlo",
    "P": "cdseifo",
    "S": "mcko",
    "Z": "slp",
    "C": "cfso",
}


def one_of(characters: Iterable[str]) -> CharTest:
    return frozenset(characters).__contains__


def within(first: str, last: str) -> CharTest:
    return lambda character: first <= character <= last


def none_of(test: CharTest) -> CharTest:
    return lambda character: not test(character)


def either(tests: Iterable[CharTest]) -> CharTest:
    alternatives = tuple(tests)
    return lambda character: any(test(character) for test in alternatives)


def any_case(test: CharTest) -> CharTest:
    def passes(character: str) -> bool:
        forms = {character, character.lower(), character.upper()}
        # Some upper-case forms have two characters, which a test of one cannot take.
        return any(len(form) == 1 and test(form) for form in forms)

    return passes


def anything(_: str) -> bool:
    return True


not_a_line_end = none_of(one_of(LINE_END))


def class_of_letter(letter: str) -> CharTest | None:
    r"""`d` for \d, `D` for \D and so on; None if there is no such class."""
    members = _BY_LETTER.get(letter.lower())
    if members is None:
        return None
    return one_of(members) if letter.islower() else none_of(one_of(members))


def posix_class(name: str) -> CharTest | None:
    """The class [:name:] or [:^name:]."""
    members = _POSIX.get(name.removeprefix("^"))
    if members is None:
        return None
    return none_of(one_of(members)) if name.startswith("^") else one_of(members)


def unicode_class(name: str) -> CharTest | None:
    r"""The class \p{name}; scripts are not supported."""
    if name == "Any":
        return anything
    if name[:1] in _CATEGORIES and name[1:] in {"", *_CATEGORIES[name[0]]}:
        return lambda character: unicodedata.category(character).startswith(name)
    return None
