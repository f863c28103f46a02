"""The tables that a SQL text reads: the names after FROM and JOIN. This only determines the order
of flows before Spark starts; Spark parses the text properly.
"""

import re
from collections.abc import Iterator

_PART = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?\*/ | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*"
    | `(?P<quoted>[^`]+)` | (?P<word>[A-Za-z_][A-Za-z0-9_]*) | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
# FROM in `extract(year FROM ts)` and similar functions names no table.
_FUNCTIONS_WITH_FROM = {"extract", "trim", "substring", "substr", "overlay", "position"}
_ENDS_A_LIST = {
    "where", "group", "having", "order", "sort", "distribute", "cluster", "limit", "window",
    "union", "except", "intersect", "minus", "qualify", "select", "on", "using",
}  # fmt: skip


def tables_in(text: str) -> tuple[str, ...]:
    """In order, without duplicates, and including names that the text defines itself (WITH)."""
    tables: dict[str, None] = {}
    # The word before each open bracket.
    brackets: list[str] = [""]
    awaits = [False]
    in_list = [False]
    before = ""
    for part, is_name in _split(text):
        lower = part.lower()
        if part == "(":
            brackets.append(before)
            awaits.append(awaits[-1] and before in {"from", "join", ",", "lateral", "stream"})
            in_list.append(False)
        elif part == ")" and len(brackets) > 1:
            brackets.pop()
            awaits.pop()
            in_list.pop()
            awaits[-1] = False
        elif lower in {"from", "join"} and not is_name:
            names_table = brackets[-1] not in _FUNCTIONS_WITH_FROM and before != "distinct"
            awaits[-1] = names_table
            in_list[-1] = names_table
        elif lower in _ENDS_A_LIST:
            awaits[-1] = in_list[-1] = False
        elif part == ",":
            awaits[-1] = in_list[-1]
        elif awaits[-1] and lower not in {"stream", "lateral", "only"}:
            tables[part] = None
            awaits[-1] = False
        before = lower
    return tuple(tables)


def _split(text: str) -> Iterator[tuple[str, bool]]:
    """Yields tokens, and whether each is a quoted name."""
    for match in _PART.finditer(text):
        if match["quoted"]:
            yield match["quoted"], True
        elif match["word"] or match["sign"]:
            yield match[0], False
