"""Responses of a polled HTTP source: rows, the next cursor, and the position in a checkpoint."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from moldau.core.spark.errors import HttpError, OptionError, suggestion
from moldau.frozen import frozen

KNOWN_OPTIONS = (
    "url", "everyMs", "timeoutMs", "attempts", "headers", "params", "path", "lines",
    "skipFirstLine", "cursorParam", "cursorLast", "cursorNext", "cursorStart", "keep",
)  # fmt: skip
# The request may succeed later: the problem is the server or the network.
_TRANSIENT = frozenset({408, 425, 429})
_SERVER_ERRORS = range(500, 600)
_BACKOFF_MS_MAX = 60_000


@frozen(kw_only=True)
class HttpOptions:
    url: str
    every_ms: int = 10_000
    timeout_ms: int = 30_000
    attempts: int = 5
    headers: tuple[tuple[str, str], ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    path: str | None = None
    is_lines: bool = False
    skips_first_line: bool = False
    cursor_param: str | None = None
    cursor_last: str | None = None
    cursor_next: str | None = None
    cursor_start: str | None = None
    keep: str = ""


class PollPosition(NamedTuple):
    """A query's position, which Spark stores with each batch."""

    poll: int = 0
    """The number of responses with new rows so far."""
    digest: str = ""
    cursor: str | None = None
    etag: str | None = None
    modified: str | None = None


class Row(NamedTuple):
    value: bytes
    error: str | None = None


def read_options(values: Mapping[str, str]) -> HttpOptions:
    """Raises OptionError."""
    by_lower = {name.lower() for name in KNOWN_OPTIONS}
    for name in values:
        if name.lower() not in by_lower:
            raise OptionError(f"there is no option '{name}'{suggestion(name, KNOWN_OPTIONS)}")
    url = values.get("url", "")
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
        raise OptionError(f"url must be http://host/… or https://host/…, not '{url}'")
    return HttpOptions(
        url=url,
        every_ms=_whole_number(values, "everyMs", 10_000),
        timeout_ms=_whole_number(values, "timeoutMs", 30_000),
        attempts=_whole_number(values, "attempts", 5),
        headers=_text_pairs(values, "headers"),
        params=_text_pairs(values, "params"),
        path=values.get("path"),
        is_lines=values.get("lines", "false").lower() == "true",
        skips_first_line=values.get("skipFirstLine", "false").lower() == "true",
        cursor_param=values.get("cursorParam"),
        cursor_last=values.get("cursorLast"),
        cursor_next=values.get("cursorNext"),
        cursor_start=values.get("cursorStart"),
        keep=values.get("keep", ""),
    )


def _whole_number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(f"{name} must be a whole number from 1, not '{text}'")
    return int(text)


def _text_pairs(values: Mapping[str, str], name: str) -> tuple[tuple[str, str], ...]:
    try:
        pairs = json.loads(values.get(name, "{}"))
        return tuple((str(key), str(value)) for key, value in pairs.items())
    except (ValueError, AttributeError):
        raise OptionError(f"{name} must be a JSON object of strings") from None


def address_of(options: HttpOptions, position: PollPosition) -> str:
    """The URL with parameters, and the cursor if there is one."""
    parts = urlsplit(options.url)
    query = [*parse_qsl(parts.query, keep_blank_values=True), *options.params]
    cursor = options.cursor_start if position.cursor is None else position.cursor
    if options.cursor_param is not None and cursor is not None:
        query = [pair for pair in query if pair[0] != options.cursor_param]
        query.append((options.cursor_param, cursor))
    return urlunsplit(parts._replace(query=urlencode(query)))


def digest_of_body(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


def rows_of(body: bytes, options: HttpOptions) -> Iterator[Row]:
    """An unreadable response is one row with the error."""
    if options.is_lines:
        lines = body.splitlines()[1 if options.skips_first_line else 0 :]
        yield from (Row(line) for line in lines if line.strip())
        return
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        yield Row(body, f"the response is not JSON: {error}")
        return
    try:
        value = _value_at(document, options.path)
    except LookupError:
        yield Row(body, f"the response has nothing at '{options.path}'")
        return
    for row in value if isinstance(value, list) else [] if value is None else [value]:
        yield Row(json.dumps(row, ensure_ascii=False).encode())


def position_after(
    before: PollPosition, body: bytes, options: HttpOptions, headers: Mapping[str, str]
) -> PollPosition:
    """`headers`: the response's headers in lower case. Returns `before` if nothing is new."""
    digest = digest_of_body(body)
    rows = list(rows_of(body, options))
    cursor = _next_cursor(before.cursor, body, rows, options)
    if digest == before.digest or (not rows and cursor == before.cursor):
        return before
    return PollPosition(
        before.poll + 1, digest, cursor, headers.get("etag"), headers.get("last-modified")
    )


def _next_cursor(
    before: str | None, body: bytes, rows: list[Row], options: HttpOptions
) -> str | None:
    try:
        if options.cursor_next is not None:
            value = _value_at(json.loads(body), options.cursor_next)
        elif options.cursor_last is not None and rows and rows[-1].error is None:
            value = _value_at(json.loads(rows[-1].value), options.cursor_last)
        else:
            return before
    except (ValueError, LookupError, RecursionError):
        return before
    return before if value in {None, "", False} or isinstance(value, dict | list) else str(value)


def _value_at(document: Any, path: str | None) -> Any:
    """Raises LookupError."""
    for name in path.split(".") if path else ():
        if isinstance(document, list) and name.isdecimal():
            document = document[int(name)]
        elif isinstance(document, dict):
            document = document[name]
        else:
            raise LookupError(name)
    return document


def is_transient(status: int) -> bool:
    """Whether a retry may get another response."""
    return status in _TRANSIENT or status in _SERVER_ERRORS


def backoff_ms(failures: int) -> int:
    return min(1000 << (failures - 1), _BACKOFF_MS_MAX)


def write_position(position: PollPosition) -> dict[str, Any]:
    return {name: value for name, value in position._asdict().items() if value is not None}


def read_position(values: Mapping[str, Any]) -> PollPosition:
    try:
        return PollPosition(**values)
    except TypeError:
        raise HttpError(
            f"the checkpoint belongs to another source: {json.dumps(dict(values))}"
        ) from None
