"""Responses of an HTTP source, and its errors for failing servers, without Spark."""

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from pipelines.http_server import Response, serving
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau.connectors.http.answers import KeptAnswers, TransientError, request_answer
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
from moldau.core.spark.errors import HttpError, OptionError
from moldau.pipelines.run.run_folder import folder_of

PAGE = HttpOptions(url="http://host/items?a=1", path="data.items")
SINCE = HttpOptions(url="http://host/", cursor_param="since", cursor_last="id", cursor_start="0")
NOWHERE = PollPosition()
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


def answering(request: BaseHTTPRequestHandler) -> Response:
    path = urlsplit(request.path).path
    if path == "/same" and request.headers.get("If-None-Match") == '"1"':
        return Response(304)
    if path == "/away":
        return Response(302, b"", {"Location": "http://elsewhere.invalid/"})
    if path == "/moved":
        return Response(302, b"", {"Location": "/same"})
    if path.startswith("/status/"):
        return Response(int(path.removeprefix("/status/")), b"no\nluck")
    return Response(
        200, json.dumps(dict(parse_qsl(urlsplit(request.path).query))).encode(), {"ETag": '"1"'}
    )


def test_responses_of_servers() -> None:
    with serving(answering) as server:

        def asked(path: str, place: PollPosition = NOWHERE) -> bytes | None:
            options = HttpOptions(url=server + path, params=(("p", "ä b"),), timeout_ms=60_000)
            found = request_answer(options, place)
            return None if found is None else found.body

        assert json.loads(asked("/same?q=1") or b"") == {"q": "1", "p": "ä b"}
        assert asked("/moved") == b"{}"
        assert asked("/same", PollPosition(1, "", None, '"1"')) is None
        for status in (429, 500, 503):
            with pytest.raises(TransientError, match=f"{status} .*: no luck"):
                asked(f"/status/{status}")
        with pytest.raises(HttpError, match=r"/status/404\?p=.*: 404 Not Found: no luck") as caught:
            asked("/status/404")
        assert not isinstance(caught.value, TransientError)
        with pytest.raises(HttpError, match=r"redirects to http://elsewhere\.invalid/; use that"):
            asked("/away")
        gone = server
    with pytest.raises(TransientError, match="no answer: "):
        request_answer(HttpOptions(url=gone), PollPosition())


def test_a_response_is_kept_until_it_is_deleted(tmp_path: Path) -> None:
    kept = KeptAnswers(str(tmp_path / "answers"))
    first = position_after(PollPosition(), b"[1]\n[2]", HttpOptions(url="u", is_lines=True), {})
    assert kept.position_of(1) is None
    assert kept.keep(first, b"[1]\n[2]") == first
    # A second one with the same number is ignored.
    assert kept.keep(first._replace(etag="other"), b"[1]\n[2]") == first
    again = KeptAnswers(str(tmp_path / "answers"))
    assert again.position_of(1) == first
    assert again.body_of(1) == b"[1]\n[2]"
    with pytest.raises(HttpError, match=r"answer 2 is not in .*restore both together"):
        again.body_of(2)
    (tmp_path / "answers" / "000000000001").write_bytes(b'{"poll": 1, "digest": "x"}\n[3]')
    with pytest.raises(HttpError, match="is damaged"):
        again.body_of(1)
    again.forget(1)
    assert kept.position_of(1) is None


def test_responses_and_checkpoint_must_match(tmp_path: Path) -> None:
    content = "sources: {items: {http: 'http://127.0.0.1/', schema: n INT}}\n"
    content += "steps: {all: {sql: SELECT n FROM items, into: {topic: out}}}\n"
    path = written(tmp_path, "items.yaml", content)
    pipeline = mp.load(path)
    with pytest.raises(
        mp.MoldauError, match=r":1:.*: 'items' keeps HTTP answers with its checkpoint"
    ):
        folder_of(pipeline, path, "hdfs://host/checkpoint")
    assert folder_of(pipeline, path).path == tmp_path / ".moldau" / "items"
