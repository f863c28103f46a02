"""Java's .properties format, parsed like java.util.Properties: comments, continued lines, escapes,
three kinds of separators. Names and values are text and not trimmed. The only difference: at the
end of the file, a lone backslash is ignored here, but is an empty name in Java.
"""

import re
from collections.abc import Iterator

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS = 4


def parse_properties(text: str, *, source: str = "properties") -> dict[str, str]:
    """The last value of a name wins. Raises INVALID_CONFIG with source and line."""
    properties = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = _unescape(value)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{source}, line {number}: \\u must be followed by four hexadecimal digits",
            ) from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The number and text of each line, without comments, and with continued lines joined."""
    begun, start = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        content = line.lstrip(_BLANKS)
        if not begun:
            if not content or content[0] in "#!":
                continue
            start = number
        backslashes = len(content) - len(content.rstrip("\\"))
        if backslashes % 2:
            begun += content[:-1]
        else:
            yield start, begun + content
            begun = ""
    if begun:
        yield start, begun


def _split(line: str) -> tuple[str, str]:
    """The name ends at the first unescaped =, : or whitespace."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest.startswith(("=", ":")):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts, index = [], 0
    while index < len(text):
        character = text[index]
        index += 1
        if character == "\\" and index < len(text):
            character = text[index]
            index += 1
            if character == "u":
                digits = text[index : index + _HEX_DIGITS]
                if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                    raise ValueError(digits)
                character = chr(int(digits, 16))
                index += _HEX_DIGITS
            else:
                character = _ESCAPES.get(character, character)
        parts.append(character)
    # Java's strings are UTF-16: two escapes can be one character.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
