"""Files and addresses as sources: every row once, bad ones as dead letters, even after faults."""

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pytest
from pipelines.at_work import records_of, run_once, values_of
from pipelines.http_server import Response, serving
from pipelines.killing import has_reached, started
from pipelines.pipeline_files import written
from pyarrow import parquet
from support.waiting import wait_at_random, wait_for

import moldau.pipelines as mp
from moldau.pipelines.run.run_folder import RunFolder
from moldau.testing import ThreadBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark
FOLDERS = ("json", "csv", "parquet")


def drop_files(folder: Path, number: int, rows: range) -> None:
    """One file of each kind, which appear atomically."""
    contents = {
        "json": "".join(f'{{"n": {n}, "word": "w{n}"}}\n' for n in rows).encode(),
        "csv": ("n,word\n" + "".join(f"{n},w{n}\n" for n in rows)).encode(),
    }
    for kind in FOLDERS:
        (folder / kind).mkdir(exist_ok=True)
        beside = folder / kind / f"_{number}"
        if kind == "parquet":
            words = [f"w{n}" for n in rows]
            parquet.write_table(pa.table({"n": pa.array(rows, pa.int64()), "word": words}), beside)
        else:
            beside.write_bytes(contents[kind])
        beside.rename(folder / kind / f"{number}.{kind}")


FILES = """\
name: {name}
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  from_json:
    files: json
    format: json
    schema: "n BIGINT, word STRING"
    dead_letter: {name}.dlq
    max_files_per_trigger: 1
  from_csv:
    files: csv
    format: csv
    schema: "n BIGINT, word STRING"
    options: {{header: true}}
    dead_letter: {name}.dlq
    max_files_per_trigger: 1
  from_parquet:
    {{files: parquet, format: parquet, schema: "n BIGINT, word STRING", max_files_per_trigger: 1}}
{more}
steps:
  a: {{sql: SELECT n FROM from_json, into: {{topic: {name}.json}}}}
  b: {{sql: SELECT n FROM from_csv, into: {{topic: {name}.csv}}}}
  c: {{sql: SELECT n FROM from_parquet, into: {{topic: {name}.parquet}}}}
{steps}
"""


def numbers(session: Any, node: ThreadBroker, topic: str) -> list[int]:
    return sorted(row["n"] for row in values_of(session, node, topic))


def test_files_of_every_kind(session: Any, node: ThreadBroker, tmp_path: Path) -> None:
    counted = (
        "  d: {sql: SELECT count(*) AS rows FROM from_csv, mode: complete,"
        " into: {topic: kinds.counted}}"
    )
    content = FILES.format(name="kinds", bootstrap=node.bootstrap, more="", steps=counted)
    pipeline = mp.load(written(tmp_path, "kinds.yaml", content))
    drop_files(tmp_path, 0, range(5))
    (tmp_path / "json" / "bad.json").write_text('{"n": 100}\n{"n": "x"}\n{broken\n')
    (tmp_path / "csv" / "bad.csv").write_text("n,word\n100,w\nx,w\n1\n")
    run_once(session, pipeline, tmp_path)
    drop_files(tmp_path, 1, range(5, 8))
    run_once(session, pipeline, tmp_path)
    # As after a crash between the commit in the topic and Spark's own.
    for file in (tmp_path / "checkpoint").glob("from_*/commits/*2*"):
        file.unlink()
    run_once(session, pipeline, tmp_path)
    assert numbers(session, node, "kinds.json") == [*range(8), 100]
    assert numbers(session, node, "kinds.csv") == [*range(8), 100]
    assert numbers(session, node, "kinds.parquet") == [*range(8)]
    assert values_of(session, node, "kinds.counted")[-1] == {"rows": 9}
    letters = records_of(session, node, "kinds.dlq")
    assert sorted(value for _, value, _ in letters) == [b"1", b"x,w", b'{"n": "x"}', b"{broken"]
    told = {headers["__dlq.file"].rpartition("/")[2]: headers for _, _, headers in letters}
    assert sorted(told) == ["bad.csv", "bad.json"]
    assert told["bad.csv"]["__dlq.step"] == "from_csv"
    assert told["bad.csv"]["__dlq.error"].startswith("the line is not csv of the columns n BIGINT")


def test_files_with_other_contents_than_declared(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    content = FILES.format(name="strict_files", bootstrap=node.bootstrap, more="", steps="")
    content = content.replace("dead_letter: strict_files.dlq", "on_error: fail")
    path = written(tmp_path, "strict.yaml", content)
    with pytest.raises(mp.MoldauError, match=r"strict\.yaml:5:5: 'from_json'.*json") as caught:
        run_once(session, mp.load(path), tmp_path)
    assert "\n" not in str(caught.value)
    drop_files(tmp_path, 0, range(1))
    (tmp_path / "csv" / "bad.csv").write_text("n,word\nx,w\n")
    with pytest.raises(
        mp.MoldauError, match=r"bad\.csv, 'x,w': the line is not csv of the columns"
    ):
        run_once(session, mp.load(path), tmp_path)


HTTP = """\
name: {name}
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  items:
    http: "{url}/items"
    path: data
    every: 10ms
    attempts: 3
    schema: n BIGINT
    dead_letter: {name}.dlq
    headers: {{Authorization: "Bearer ${{LAKE_TOKEN}}"}}
    cursor: {{param: since, last: n, start: "-1"}}
steps: {{all: {{sql: SELECT n FROM items, into: {{topic: {name}.out}}}}}}
"""


class Items:
    """A server that returns at most two items after `since`."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.asked: list[str] = []
        self.next_answers: Iterator[Response] = iter(())

    def __call__(self, request: BaseHTTPRequestHandler) -> Response:
        if request.headers["Authorization"] != "Bearer secret":
            return Response(401, b"who are you?")
        since = int(dict(parse_qsl(urlsplit(request.path).query))["since"])
        self.asked.append(str(since))
        if (told := next(self.next_answers, None)) is not None:
            return told
        rows = [{"n": n, "more": "x"} for n in self.items if n > since][:2]
        return Response(200, json.dumps({"data": rows}).encode())


def test_an_address_is_read_page_by_page(
    session: Any, node: ThreadBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = Items(list(range(5)))
    with serving(items) as url:
        content = HTTP.format(name="paged", bootstrap=node.bootstrap, url=url)
        pipeline = mp.load(written(tmp_path, "paged.yaml", content))
        with pytest.raises(
            mp.MoldauError, match=r":5:5: environment variable LAKE_TOKEN is not set"
        ):
            run_once(session, pipeline, tmp_path)
        monkeypatch.setenv("LAKE_TOKEN", "wrong")
        with pytest.raises(mp.MoldauError, match=r"401 Unauthorized: who are you\?") as caught:
            run_once(session, pipeline, tmp_path)
        assert "\n" not in str(caught.value)
        monkeypatch.setenv("LAKE_TOKEN", "secret")
        # It does not respond at first, and then once with something else.
        items.next_answers = iter(
            [Response(503), Response(200, b"<html>"), Response(200, b'{"error": 1}')]
        )
        run_once(session, pipeline, tmp_path)
        run_once(session, pipeline, tmp_path)
        assert numbers(session, node, "paged.out") == []
        run_once(session, pipeline, tmp_path)
        assert numbers(session, node, "paged.out") == [*range(5)]
        items.items.append(7)
        run_once(session, pipeline, tmp_path)
        # As after a crash: a request now would get another response.
        last = max((tmp_path / "checkpoint" / "items" / "commits").glob("?"))
        last.unlink()
        items.items.remove(7)
        run_once(session, pipeline, tmp_path)
        assert numbers(session, node, "paged.out") == [*range(5), 7]
        items.next_answers = iter([Response(500, b"down")] * 3)
        with pytest.raises(mp.MoldauError, match=r"500 .*: down; 3 times in a row"):
            run_once(session, pipeline, tmp_path)
    letters = records_of(session, node, "paged.dlq")
    assert [value for _, value, _ in letters] == [b"<html>", b'{"error": 1}']
    first, second = (headers for _, _, headers in letters)
    assert first["__dlq.error"].startswith("the response is not JSON")
    assert second["__dlq.error"] == "the response has nothing at 'data'"
    assert (first["__dlq.url"], first["__dlq.poll"]) == (f"{url}/items", "1")


ROWS = 60
WAIT_S = 400.0


@pytest.mark.slow
def test_killed_runs_over_files_and_addresses_lose_nothing(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    """Each response has a unique number, so that a repeated request would be visible."""
    count = iter(range(1_000_000))

    def answer(request: BaseHTTPRequestHandler) -> Response:
        return Response(200, json.dumps([{"n": next(count)}]).encode())

    for number in range(6):
        drop_files(tmp_path, number, range(10 * number, 10 * number + 10))
    with serving(answer) as url:
        more = f"  polled: {{http: '{url}', every: 1ms, schema: n BIGINT}}"
        steps = "  d: {sql: SELECT n FROM polled, into: {topic: killed_files.polled}}"
        content = FILES.format(
            name="killed_files", bootstrap=node.bootstrap, more=more, steps=steps
        )
        path = written(tmp_path, "killed_files.yaml", content)
        folder = RunFolder(tmp_path / ".moldau" / "killed_files")
        with started(path) as running:
            wait_for(has_reached(2, folder, running), "batches", WAIT_S)
            # Somewhere within a batch.
            wait_at_random(Random(), 0.3)
            assert running.poll() is None, (tmp_path / "errors").read_text()[-3000:]
        with started(path, "--once") as last:
            assert last.wait(WAIT_S) == 0, (tmp_path / "errors").read_text()[-3000:]
    for kind in FOLDERS:
        assert numbers(session, node, f"killed_files.{kind}") == [*range(ROWS)]
    polled = numbers(session, node, "killed_files.polled")
    assert len(polled) == len(set(polled)) > 2
    # A response that was not stored does not count: at most one, where the run was killed.
    assert len(set(range(polled[-1])) - set(polled)) <= 1
