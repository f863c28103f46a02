"""Formats of `moldau consume`: parts between separators, JSON, or a format of the user's own with
kcat's letters.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

import typer

from moldau.cli.records.record_json import record_line
from moldau.cli.shared.escaping import printable as escape
from moldau.cli.shared.parsing import time_text
from moldau.frozen import frozen
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.types import TopicPartition

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Formatter: TypeAlias = Callable[[TopicPartition, ConsumerRecord], bytes]

_NULL = b"null"
_TOKEN = re.compile(rb"%(.)|\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}

TOKENS: dict[bytes, Callable[[TopicPartition, ConsumerRecord], bytes]] = {
    b"t": lambda partition, _: partition.topic.encode(),
    b"p": lambda partition, _: b"%d" % partition.partition,
    b"o": lambda _, record: b"%d" % record.offset,
    b"k": lambda _, record: b"" if record.key is None else record.key,
    b"s": lambda _, record: b"" if record.value is None else record.value,
    b"v": lambda _, record: b"" if record.value is None else record.value,
    b"K": lambda _, record: b"%d" % (-1 if record.key is None else len(record.key)),
    b"S": lambda _, record: b"%d" % (-1 if record.value is None else len(record.value)),
    b"T": lambda _, record: b"%d" % record.timestamp,
    b"D": lambda _, record: time_text(record.timestamp).encode(),
    b"h": lambda _, record: headers_text(record),
    b"%": lambda _, __: b"%",
}
TOKENS_HELP = (
    "%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time in ms, %D date, "
    "%K and %S sizes"
)


@frozen(kw_only=True)
class Parts:
    """The parts of a record that are printed besides the value."""

    timestamps: bool = False
    partitions: bool = False
    offsets: bool = False
    headers: bool = False
    keys: bool = False


def headers_text(record: ConsumerRecord) -> bytes:
    return b",".join(
        name.encode() + b"=" + (_NULL if content is None else content)
        for name, content in record.headers
    )


def json_lines(partition: TopicPartition, record: ConsumerRecord) -> bytes:
    return record_line(partition, record).encode() + b"\n"


def plain(parts: Parts, separator: bytes, end: bytes) -> Formatter:
    """The order of Kafka's console consumer: time, partition, offset, headers, key, value."""
    columns: list[Callable[[TopicPartition, ConsumerRecord], bytes]] = []
    if parts.timestamps:
        columns.append(lambda _, record: time_text(record.timestamp).encode())
    if parts.partitions:
        columns.append(lambda partition, _: str(partition).encode())
    if parts.offsets:
        columns.append(lambda _, record: b"%d" % record.offset)
    if parts.headers:
        columns.append(lambda _, record: headers_text(record) or b"-")
    if parts.keys:
        columns.append(lambda _, record: _NULL if record.key is None else record.key)
    if not columns:
        return lambda _, record: (_NULL if record.value is None else record.value) + end
    columns.append(lambda _, record: _NULL if record.value is None else record.value)
    return lambda partition, record: (
        separator.join([column(partition, record) for column in columns]) + end
    )


def after(change: Callable[[ConsumerRecord], ConsumerRecord], inner: Formatter) -> Formatter:
    return lambda partition, record: inner(partition, change(record))


def _with(
    record: ConsumerRecord, key: bytes | None, value: bytes | None, headers: Headers
) -> ConsumerRecord:
    """The same record with other content."""
    return ConsumerRecord(
        record.topic, record.partition, record.offset, record.timestamp, key, value, headers
    )


def hexadecimal(record: ConsumerRecord) -> ConsumerRecord:
    """Key, value and header contents as digits."""
    return _with(
        record,
        key=_digits(record.key),
        value=_digits(record.value),
        headers=tuple((name, _digits(content)) for name, content in record.headers),
    )


def printable(record: ConsumerRecord) -> ConsumerRecord:
    """For a terminal: unprintable characters are escaped and cannot take over the screen."""
    return _with(
        record,
        key=_escaped(record.key),
        value=_escaped(record.value),
        headers=tuple((escape(name), _escaped(content)) for name, content in record.headers),
    )


def _digits(content: bytes | None) -> bytes | None:
    return None if content is None else content.hex().encode()


def _escaped(content: bytes | None) -> bytes | None:
    if content is None:
        return None
    return escape(content.decode("utf-8", "backslashreplace"), keep="\n\t").encode()


def of_tokens(text: str) -> Formatter:
    """A format like `%o: %s\\n`. Raises BadParameter for an unknown letter."""
    pieces: list[bytes | Callable[[TopicPartition, ConsumerRecord], bytes]] = []
    source = text.encode()
    end = 0
    for match in _TOKEN.finditer(source):
        pieces += [source[end : match.start()], _piece(match)]
        end = match.end()
    pieces.append(source[end:])
    kept = [piece for piece in pieces if piece != b""]

    def show(partition: TopicPartition, record: ConsumerRecord) -> bytes:
        return b"".join(
            [piece if isinstance(piece, bytes) else piece(partition, record) for piece in kept]
        )

    return show


def _piece(match: "re.Match[bytes]") -> bytes | Callable[[TopicPartition, ConsumerRecord], bytes]:
    letter, escape = match[1], match[2]
    if letter is not None:
        if letter not in TOKENS:
            shown = letter.decode("utf-8", "replace")
            raise typer.BadParameter(f"--format: unknown %{shown}; use {TOKENS_HELP}.")
        return TOKENS[letter]
    if escape.startswith(b"x") and len(escape) == 3:
        return bytes.fromhex(escape[1:].decode())
    return _ESCAPES.get(escape, b"\\" + escape)


def unescaped(text: str) -> bytes:
    """`\\t` and similar escapes, as a shell passes them."""
    return _TOKEN.sub(
        lambda match: match[0] if match[2] is None else _plain_piece(match), text.encode()
    )


def _plain_piece(match: "re.Match[bytes]") -> bytes:
    piece = _piece(match)
    assert isinstance(piece, bytes)
    return piece
