"""Rows that a step itself marks as bad are sent, dropped, or end the run, and are counted."""

from pathlib import Path
from typing import Any

import pytest
from pipelines.at_work import make_topics, records_of, run_once, send, values_of
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau import Admin
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

STEPS = """\
name: letters
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  numbers: {{topic: letters, schema: n INT, start: earliest, dead_letter: letters.dlq}}
steps:
  small:
    sql: SELECT n, CASE WHEN n > 5 THEN 'too large' END AS _error FROM numbers
    on_error: dead_letter
    into: {{topic: letters.small}}
  counts:
    sql: |
      SELECT n % 2 AS rest, count(*) AS c, CASE WHEN n % 2 = 1 THEN 'odd' END AS _error
      FROM numbers GROUP BY n % 2
    mode: upsert
    on_error: dead_letter
    into: {{topic: letters.counts, key: rest}}
"""
STRICT = """\
name: strict
settings: {{bootstrap.servers: "{bootstrap}"}}
sources: {{numbers: {{topic: letters, schema: n INT, start: earliest, on_error: drop}}}}
steps:
  kept:
    sql: SELECT n, CASE WHEN n > 5 THEN 'too large' END AS _error FROM numbers
    on_error: fail
    into: {{table: kept}}
"""


def test_rows_marked_as_bad_are_sent_and_counted(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    """Also for a stateful flow, whose state is read once."""
    make_topics(node, "letters")
    send(node, "letters", [{"n": n} for n in range(10)])
    send(node, "letters", [b"{broken"])
    content = STEPS.format(bootstrap=node.bootstrap)
    pipeline = mp.load(written(tmp_path, "letters.yaml", content))
    first = {one.query: one for one in run_once(session, pipeline, tmp_path)}
    assert first["numbers"].targets == ("letters.small", "dead letters")
    counts = {name: one.dead_letters_total for name, one in first.items()}
    assert counts == {"numbers": 4 + 1, "counts": 1}
    send(node, "letters", [{"n": 7}])
    again = {one.query: one.dead_letters for one in run_once(session, pipeline, tmp_path)}
    assert again == {"numbers": 1, "counts": 1}
    with Admin(node.bootstrap) as admin:
        groups = [one.group_id for one in admin.list_groups() if "letters" in one.group_id]
    assert sorted(groups) == ["moldau.pipeline.letters.counts", "moldau.pipeline.letters.numbers"]

    assert sorted(row["n"] for row in values_of(session, node, "letters.small")) == list(range(6))
    assert [row["c"] for row in values_of(session, node, "letters.counts")] == [5]
    letters = [
        (headers["__dlq.step"], headers["__dlq.error"].partition(" of ")[0], value)
        for _, value, headers in records_of(session, node, "letters.dlq")
    ]
    assert sorted(letters) == [
        ("counts", "odd", b'{"rest":1,"c":5}'),
        ("counts", "odd", b'{"rest":1,"c":6}'),
        ("numbers", "the value is not json", b"{broken"),
        ("small", "too large", b'{"n":6}'),
        ("small", "too large", b'{"n":7}'),
        ("small", "too large", b'{"n":7}'),
        ("small", "too large", b'{"n":8}'),
        ("small", "too large", b'{"n":9}'),
    ]

    strict = mp.load(written(tmp_path, "strict.yaml", STRICT.format(bootstrap=node.bootstrap)))
    with pytest.raises(mp.MoldauError, match="step kept: too large"):
        run_once(session, strict, tmp_path / "strict")
    assert not list((tmp_path / "kept").glob("*.parquet"))
