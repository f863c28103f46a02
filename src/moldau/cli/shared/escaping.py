"""Makes text from elsewhere safe for a terminal: names of topics and groups, hosts, keys, error
messages. Unprintable characters are escaped, so that they cannot take over the screen or forge a
line.
"""

import json
import sys
from typing import Any

_BMP_MAX = 0xFFFF


def printable(text: str, keep: str = "") -> str:
    """The text with unprintable characters escaped, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def utf8_text(content: bytes) -> str | None:
    """None if the bytes are not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def json_text(document: Any, *, indent: int | None = None) -> str:
    """JSON with readable letters of all languages. `json` alone lets control characters above 127
    pass, which a terminal may take for commands; they are escaped here.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(document, indent=indent, separators=separators, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else _in_json(character)
        for character in text
    )


def _in_json(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number <= _BMP_MAX else json.dumps(character)[1:-1]


def print_line(line: str = "") -> None:
    """One line on stdout, escaped on a terminal. In a pipe it stays as it is, for programs."""
    sys.stdout.write((printable(line) if sys.stdout.isatty() else line) + "\n")
