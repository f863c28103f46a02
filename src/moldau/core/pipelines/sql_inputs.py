"""Which tables a text of SQL reads: the names behind FROM and JOIN. Spark parses it in earnest;
this is only for the order of flows, before Spark is there.
"""

import re
from collections.abc import Iterator

_PART = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?\*/ | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*"
    | `(?P<quoted>[^`]+)` | (?P<word>[A-Za-z_][A-Za-z0-9_]*) | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
# `extract(year FROM ts)` and its like name no table.
_FUNCTIONS_WITH_FROM = {"extract", "trim", "substring", "substr", "overlay", "position"}
_ENDS_A_LIST = {
    "where", "group", "having", "order", "sort", "distribute", "cluster", "limit", "window",
    "union", "except", "intersect", "minus", "qualify", "select", "on", "using",
}  # fmt: skip


def tables_in(text: str) -> tuple[str, ...]:
    """In their order, each once; names of the text's own (WITH) are among them."""
    found: dict[str, None] = {}
    # For each open bracket: the word before it, and whether a table's name may come.
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
            found[part] = None
            awaits[-1] = False
        before = lower
    return tuple(found)


def _split(text: str) -> Iterator[tuple[str, bool]]:
    """With whether it is a name in quotes."""
    for match in _PART.finditer(text):
        if match["quoted"]:
            yield match["quoted"], True
        elif match["word"] or match["sign"]:
            yield match[0], False
