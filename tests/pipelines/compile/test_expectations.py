"""Expectations: rows that fail one are sent as dead letters, dropped, or end the run, and are
counted in any case.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pipelines.at_work import make_topics, queries_of, records_of, run_once, send, values_of
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau.core.pipelines.query_progress import QueryProgress, StepCounts, counted
from moldau.pipelines.run.metrics import RunMetrics
from moldau.testing import ThreadBroker

EXPECTING = """\
name: expecting
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  numbers:
    topic: expecting
    schema: n INT
    start: earliest
    dead_letter: expecting.dlq
    expect: {{not_negative: n >= 0, known: n IS NOT NULL}}
steps:
  even:
    sql: SELECT n FROM numbers
    expect: {{is_even: n % 2 = 0}}
    on_error: drop
  small:
    sql: SELECT n FROM even
    expect: {{below_six: n < 6}}
    on_error: drop
    into: {{topic: expecting.small}}
  lake:
    sql: SELECT n, CASE WHEN n = 1 THEN 'it is one' END AS _error FROM numbers
    expect: {{below_nine: n < 9}}
    on_error: dead_letter
    into: {{table: lake}}
"""
STRICT = """\
name: strict
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  numbers: {{topic: expecting, schema: n INT, start: earliest, expect: {{not_negative: n >= 0}}}}
steps: {{copied: {{sql: SELECT n FROM numbers, into: {{topic: expecting.copied}}}}}}
"""
WRONG = """\
sources:
  numbers: {topic: expecting, schema: n INT, expect: {a: m > 0}}
steps: {copied: {sql: SELECT n FROM numbers, into: {topic: expecting.copied}, expect: {b: n + 1}}}
"""
TESTED = """\
sources:
  numbers: {topic: expecting, schema: n INT, expect: {not_negative: n >= 0}, on_error: drop}
steps:
  small:
    sql: SELECT n FROM numbers
    expect: {below_six: n < 6}
    into: {topic: expecting.copied}
    on_error: drop
tests:
  - name: others are left out
    given: {numbers: [{n: -1}, {n: 1}, {n: 7}]}
    expect: {small: [{n: 1}]}
"""
PYTHON = """\
import moldau.pipelines as mp

numbers = mp.topic("a", schema="n INT", expect={"not_negative": "n >= 0"})
small = mp.sql(
    "SELECT n FROM numbers", into=mp.topic("b"), on_error="drop", expect={"below_six": "n < 6"}
)
"""


@pytest.mark.spark
def test_rows_that_fail_an_expectation_are_sent_or_dropped_and_counted(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    make_topics(node, "expecting")
    send(node, "expecting", [{"n": n} for n in range(-2, 10)])
    send(node, "expecting", [{"n": None}, b"{broken"])
    path = written(tmp_path, "a.yaml", EXPECTING.format(bootstrap=node.bootstrap))
    found = {one.query: one for one in run_once(session, mp.load(path), tmp_path)}
    assert list(found) == ["numbers"]
    assert found["numbers"].targets == ("expecting.small", str(tmp_path / "lake"), "dead letters")
    assert found["numbers"].expectations_total == {
        # A condition that is null is not met.
        "numbers.not_negative": 3,
        "numbers.known": 1,
        "even.is_even": 5,
        "small.below_six": 2,
        "lake.below_nine": 1,
    }
    assert found["numbers"].dead_letters_total == 3 + 1 + 1 + 1
    assert sorted(row["n"] for row in values_of(session, node, "expecting.small")) == [0, 2, 4]
    kept = sorted(row.n for row in session.read.parquet(str(tmp_path / "lake")).collect())
    assert kept == [0, *range(2, 9)]
    letters = sorted(
        (headers["__dlq.step"], headers["__dlq.error"], value)
        for _, value, headers in records_of(session, node, "expecting.dlq")
    )
    assert letters == [
        ("lake", "expectation below_nine fails: n < 9", b'{"n":9}'),
        ("lake", "it is one", b'{"n":1}'),
        ("numbers", "expectation not_negative fails: n >= 0", b'{"n": -1}'),
        ("numbers", "expectation not_negative fails: n >= 0", b'{"n": -2}'),
        ("numbers", "expectation not_negative fails: n >= 0", b'{"n": null}'),
        ("numbers", "the value is not json of the columns n INT", b"{broken"),
    ]

    path = written(tmp_path, "strict.yaml", STRICT.format(bootstrap=node.bootstrap))
    message = "record expecting-0 offset 0: expectation not_negative fails: n >= 0"
    with pytest.raises(mp.MoldauError, match=message):
        run_once(session, mp.load(path), tmp_path / "strict")


@pytest.mark.spark
def test_conditions_are_checked_and_tested(session: Any, tmp_path: Path) -> None:
    from moldau.pipelines.compile.examples import try_example

    path = written(tmp_path, "a.yaml", WRONG)
    with pytest.raises(mp.PipelineError) as caught:
        queries_of(session, path)
    message = str(caught.value)
    assert message.startswith(f"{path}:2:58: 'a': [UNRESOLVED_COLUMN.WITH_SUGGESTION] ")
    assert message.endswith("Did you mean one of the following? [`n`].")
    path = written(tmp_path, "b.yaml", WRONG.replace("m > 0", "n > 0"))
    with pytest.raises(
        mp.PipelineError, match=r"^\S+b.yaml:3:\d+: 'b' is not a condition: n . 1 give"
    ):
        queries_of(session, path)
    pipeline = mp.load(written(tmp_path, "c.yaml", TESTED))
    assert try_example(session, pipeline, pipeline.examples[0]).problems == ()


def test_expectations_in_python_and_yaml_are_the_same(tmp_path: Path) -> None:
    yaml = mp.load(written(tmp_path, "a.yaml", TESTED))
    python = mp.load(written(tmp_path, "b.py", PYTHON))
    for one in (yaml, python):
        expected = [*one.sources["numbers"].expect, *one.flows["small"].expect]
        assert [(each.name, each.condition) for each in expected] == [
            ("not_negative", "n >= 0"),
            ("below_six", "n < 6"),
        ]
    assert yaml.flows["small"].expect[0].spot.line == 6
    without = written(tmp_path, "c.yaml", TESTED.replace("    on_error: drop\n", ""))
    assert mp.load(without).flows["small"].on_error == "fail"
    no_topic = TESTED.replace("    on_error: drop\n", "    on_error: dead_letter\n")
    with pytest.raises(mp.PipelineError, match="no source that it reads has a dead_letter"):
        mp.load(written(tmp_path, "d.yaml", no_topic))


def test_counts_of_expectations_are_summed_and_served() -> None:
    report = {
        "batchId": 0,
        "durationMs": {"triggerExecution": 10},
        "observedMetrics": {"moldau.read.numbers": {"bad": 3, "moldau_expect_not_negative": 3}},
    }
    steps = StepCounts(1, {"small.below_six": 2})
    before = QueryProgress("numbers", ("copied",), "running")
    once = counted(before, report, 3, steps)
    twice = counted(once, report | {"batchId": 1}, 3, steps)
    assert twice.expectations_total == {"numbers.not_negative": 6, "small.below_six": 4}
    assert (twice.dead_letters, twice.dead_letters_total) == (4, 8)
    assert json.loads(json.dumps(twice._asdict()))["expectations_total"] == twice.expectations_total
    metrics = RunMetrics("shop")
    metrics([twice])
    served = {
        (sample.labels["dataset"], sample.labels["expectation"]): sample.value
        for metric in metrics.collect()
        for sample in metric.samples
        if sample.name == "moldau_pipeline_expectation_failures_total"
    }
    assert served == {("numbers", "not_negative"): 6.0, ("small", "below_six"): 4.0}
