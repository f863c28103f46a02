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
    # By depth: the word before the open bracket, whether the next word names a table, and whether a
    # comma separates tables.
    brackets: list[str] = [""]
    expects_table = [False]
    in_table_list = [False]
    before = ""
    for part, is_name in _split(text):
        lower = part.lower()
        if part == "(":
            brackets.append(before)
            expects_table.append(
                expects_table[-1] and before in {"from", "join", ",", "lateral", "stream"}
            )
            in_table_list.append(False)
        elif part == ")" and len(brackets) > 1:
            brackets.pop()
            expects_table.pop()
            in_table_list.pop()
            expects_table[-1] = False
        elif lower in {"from", "join"} and not is_name:
            names_table = brackets[-1] not in _FUNCTIONS_WITH_FROM and before != "distinct"
            expects_table[-1] = names_table
            in_table_list[-1] = names_table
        elif lower in _ENDS_A_LIST:
            expects_table[-1] = in_table_list[-1] = False
        elif part == ",":
            expects_table[-1] = in_table_list[-1]
        elif expects_table[-1] and lower not in {"stream", "lateral", "only"}:
            tables[part] = None
            expects_table[-1] = False
        before = lower
    return tuple(tables)


def _split(text: str) -> Iterator[tuple[str, bool]]:
    """Yields tokens, and whether each is a quoted name."""
    for match in _PART.finditer(text):
        if match["quoted"]:
            yield match["quoted"], True
        elif match["word"] or match["sign"]:
            yield match[0], False
