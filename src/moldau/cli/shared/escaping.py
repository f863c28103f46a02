"""Text that others wrote, safe for a terminal: names of topics and groups, hosts, keys, error
messages. What does not print is escaped, so that it cannot take the screen over or forge a line.
"""

import json
import sys
from typing import Any

_BMP_MAX = 0xFFFF


def printable(text: str, keep: str = "") -> str:
    """With all characters that do not print escaped, but those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode("ascii")
        for one in text
    )


def utf8_text(content: bytes) -> str | None:
    """None if it is something else."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def json_text(document: Any, *, indent: int | None = None) -> str:
    """As readable as JSON can be, and the same to every reader of JSON. `json` alone lets control
    characters above 127 pass, which begin commands for a terminal, too.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(document, indent=indent, separators=separators, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _in_json(one) for one in text)


def _in_json(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number <= _BMP_MAX else json.dumps(character)[1:-1]


def tell(line: str = "") -> None:
    """One line on stdout. In a pipe it is left as it is: names there are for programs."""
    sys.stdout.write((printable(line) if sys.stdout.isatty() else line) + "\n")
