"""Requests to servers that answer or fail, and the responses that are kept, without Spark."""

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from pipelines.http_server import Response, serving
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau.connectors.http.answers import KeptAnswers, TransientError, request_answer
from moldau.core.connectors.http_polling import HttpOptions, PollPosition, position_after
from moldau.core.spark.errors import HttpError
from moldau.pipelines.run.run_folder import folder_of

NOWHERE = PollPosition()


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
