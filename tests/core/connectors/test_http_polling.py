"""Rows and cursors in the responses of an HTTP source, and its options."""

import json

import pytest

from moldau.core.connectors.http_polling import (
    HttpOptions,
    PollPosition,
    address_of,
    backoff_ms,
    position_after,
    read_options,
    read_position,
    rows_of,
    write_position,
)
from moldau.core.spark.errors import OptionError

PAGE = HttpOptions(url="http://host/items?a=1", path="data.items")
SINCE = HttpOptions(url="http://host/", cursor_param="since", cursor_last="id", cursor_start="0")
TOKEN = HttpOptions(url="http://host/", path="rows", cursor_param="page", cursor_next="meta.next")


@pytest.mark.parametrize(
    ("body", "options", "values", "error"),
    [
        (b'[{"a": 1}, {"a": 2}]', SINCE, ['{"a": 1}', '{"a": 2}'], None),
        (b'{"a": "\xc3\xa9"}', SINCE, ['{"a": "é"}'], None),
        (b'{"data": {"items": [1]}}', PAGE, ["1"], None),
        (b'{"data": {"items": null}}', PAGE, [], None),
        (b'{"error": "busy"}', PAGE, ['{"error": "busy"}'], "nothing at 'data.items'"),
        (b"<html>", PAGE, ["<html>"], "the response is not JSON"),
        (b"[" * 100_000, PAGE, ["[" * 100_000], "the response is not JSON"),
        (b"a\n\nb\n", HttpOptions(url="u", is_lines=True), ["a", "b"], None),
        (b"n\r\n1\r\n", HttpOptions(url="u", is_lines=True, skips_first_line=True), ["1"], None),
    ],
)
def test_rows_of_a_response(
    body: bytes, options: HttpOptions, values: list[str], error: str | None
) -> None:
    found = list(rows_of(body, options))
    assert [row.value.decode() for row in found] == values
    assert all((error or "") in (row.error or "") for row in found)
    assert error is None or found[0].error is not None


def test_a_cursor_continues_after_the_last_row() -> None:
    first = position_after(PollPosition(), b'[{"id": 3}, {"id": 7}]', SINCE, {"etag": "x"})
    assert (first.poll, first.cursor, first.etag) == (1, "7", "x")
    assert address_of(SINCE, PollPosition()) == "http://host/?since=0"
    assert address_of(SINCE, first) == "http://host/?since=7"
    # A response without new rows does not count, nor does a repeated one.
    assert position_after(first, b"[]", SINCE, {}) is first
    assert position_after(first, b'[{"id": 3}, {"id": 7}]', SINCE, {}) is first
    assert read_position(write_position(first)) == first


def test_a_cursor_from_a_field_of_the_response() -> None:
    page = json.dumps({"rows": [{"id": 1}], "meta": {"next": "p2"}}).encode()
    first = position_after(PollPosition(), page, TOKEN, {})
    assert address_of(TOKEN, PollPosition()) == "http://host/"
    assert address_of(TOKEN, first) == "http://host/?page=p2"
    last = position_after(first, b'{"rows": [{"id": 2}], "meta": {"next": null}}', TOKEN, {})
    assert (last.poll, last.cursor) == (2, "p2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://x"}, "url must be http://host/"),
        ({"url": "http://x", "evryMs": "1"}, "did you mean everyMs?"),
        ({"url": "http://x", "everyMs": "0"}, "everyMs must be a whole number from 1"),
        ({"url": "http://x", "headers": "[1]"}, "headers must be a JSON object"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_options(options)


def test_waits_between_failures_grow_to_a_minute() -> None:
    assert [backoff_ms(number) for number in (1, 2, 3, 7, 50)] == [1000, 2000, 4000, 60000, 60000]
