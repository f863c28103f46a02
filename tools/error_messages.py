"""Collects the messages of errors and log lines from the source, for `generate_reference.py`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parent.parent / "src" / "moldau"
LEVELS = {"warning": "WARNING", "error": "ERROR", "exception": "ERROR", "critical": "CRITICAL"}
INTERNAL = {"AttributeError", "BlockingIOError", "OSError", "SimulatedCrash"}
KINDS = {
    "BadParameter": "usage, exit status 2",
    "_UnconfirmedError": "usage, exit status 2",
    "data_loss": "DataLossError",
    "error": "PipelineError",
    "pipeline_error": "PipelineError",
    "refused": "MoldauError",
}
"""Functions that make an error, and errors that users meet in another form."""
LETTERS_MIN = 8
"""A shorter text is only a part of a message."""
GAP = "…"
_LEADING = re.compile(r"^(?:<[^>]*>|\W)*")
_PRINTF = re.compile(r"%(?:[.\d]*[sdrf])")


class Message(NamedTuple):
    text: str
    kind: str
    """The error's class, or the level of the log line."""


def errors_in(*places: str) -> list[Message]:
    """The texts with which code in these folders and modules raises errors."""
    return _sorted(
        Message(text, KINDS.get(name, name))
        for node in _nodes(places)
        if isinstance(node, ast.Raise) and isinstance(call := node.exc, ast.Call)
        if (name := _name_of(call.func)) not in INTERNAL
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
        for text in _texts(argument)
    )


def log_lines_in(*places: str) -> list[Message]:
    """The warnings and errors that code in these folders and modules logs."""
    return _sorted(
        Message(text, LEVELS[node.func.attr])
        for node in _nodes(places)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in LEVELS and _name_of(node.func.value) in {"_log", "logger"}
        for text in _texts(node.args[0])
    )


def _nodes(places: tuple[str, ...]) -> Iterator[ast.AST]:
    for place in places:
        path = SOURCE / place
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield from ast.walk(ast.parse(module.read_text(encoding="utf-8")))


def _sorted(messages: Iterator[Message]) -> list[Message]:
    return sorted(set(messages), key=_order)


def _order(message: Message) -> tuple[str, Message]:
    return (_LEADING.sub("", message.text).lower(), message)


def _name_of(called: ast.expr) -> str:
    match called:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _texts(argument: ast.expr) -> Iterator[str]:
    match argument:
        case ast.IfExp(body=body, orelse=orelse):
            yield from _texts(body)
            yield from _texts(orelse)
            return
        case ast.Constant(str(text)):
            shown = _printf_gaps(text)
        case ast.JoinedStr(values=values):
            shown = "".join(map(_part, values))
        case _:
            return
    if sum(map(str.isalpha, shown)) >= LETTERS_MIN and " " in shown.strip():
        yield shown


def _part(part: ast.expr) -> str:
    match part:
        case ast.Constant(value):
            return str(value)
        case ast.FormattedValue(value=ast.Name(name) | ast.Attribute(attr=name)):
            return f"<{name.strip('_').replace('_', ' ').lower()}>"
        case _:
            return GAP


def _printf_gaps(text: str) -> str:
    return _PRINTF.sub(GAP, text).replace("%%", "%")
