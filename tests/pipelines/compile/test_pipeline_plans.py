"""Every plan is analysed before the run; refusals of Spark are reported with the user's line."""

from pathlib import Path
from typing import Any

import pytest
from pipelines.at_work import queries_of
from pipelines.pipeline_files import ORDERS_PYTHON, ORDERS_YAML, written

import moldau.pipelines as mp
from moldau.pipelines.compile.sources import StreamTerms, stream_of

pytestmark = pytest.mark.spark

GROUPED = "GROUP BY window(ts, '5 minutes'), user\n    mode:"
WINDOWED = f"WATERMARK ts DELAY OF INTERVAL 10 MINUTES\n      {GROUPED} upsert"
LATE = """orders WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS a JOIN
      orders WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS b ON a.id = b.id AND a.ts > b.ts"""
UNBOUNDED = f"\n      {GROUPED} append"


def test_flows_of_one_source_share_a_pass(session: Any, tmp_path: Path) -> None:
    more = "  all: {sql: SELECT id FROM orders, into: {topic: orders.ids}}\ntests:\n"
    content = ORDERS_YAML.replace("tests:\n", more)
    found = queries_of(session, written(tmp_path, "orders.yaml", content))
    assert [(one.name, one.targets, one.output_mode) for one in found] == [
        ("orders", ["orders.big", "orders.ids", "dead letters"], "append"),
        ("per_user", ["orders.per_user"], "update"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("amount > 100", "amont > 100", "14:37", "`amont` cannot be resolved"),
        ("sum(amount)", "sum(", "18:51", "Syntax error"),
        (WINDOWED, UNBOUNDED, "17:", "watermark"),
        ("key: user, compacted", "key: usr, compacted", "17:5", "did you mean user?"),
        ("FROM orders WHERE amount > 100", "FROM orders, nowhere", "14:", "nowhere"),
        ('schema: "id BIGINT', 'schema: "id BIGONT', "6:5", "BIGONT"),
        ("amount > 100", "id = 1 ORDER BY id", "14:", "Sorting is not supported"),
        (
            "* FROM orders WHERE amount > 100",
            f"a.user FROM {LATE}",
            "14:5",
            "joins streams without",
        ),
    ],
)
def test_plans_that_spark_refuses_are_reported_with_their_location(
    session: Any, tmp_path: Path, old: str, new: str, place: str, message: str
) -> None:
    assert old in ORDERS_YAML
    path = written(tmp_path, "orders.yaml", ORDERS_YAML.replace(old, new))
    with pytest.raises(mp.PipelineError) as caught:
        queries_of(session, path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{place}")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('orders.where("amount > 100")', 'orders.where("amont > 100")', 14, "`amont` cannot be"),
        ('orders.where("amount > 100")', "orders.wear(1)", 14, "wear"),
        ('return orders.where("amount > 100")', "pass", 12, "not a DataFrame"),
    ],
)
def test_errors_of_python_flows_are_reported_with_their_line(
    session: Any, tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in ORDERS_PYTHON
    path = written(tmp_path, "orders.py", ORDERS_PYTHON.replace(old, new))
    with pytest.raises(mp.PipelineError) as caught:
        queries_of(session, path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}:")


def test_no_two_streams_share_the_environment_that_spark_writes_to(
    session: Any, tmp_path: Path
) -> None:
    pipeline = mp.load(str(written(tmp_path, "orders.yaml", ORDERS_YAML)))
    frames = [
        stream_of(session, pipeline, "orders", StreamTerms(group, "earliest"))
        for group in ("a", "b")
    ]
    assert len({_environment(frame) for frame in frames}) == len(frames)


def _environment(stream: Any) -> int:
    """The map of the JVM that the stream's Python gets its environment from when it starts."""
    relation = stream._jdf.queryExecution().analyzed().collectLeaves().apply(0)
    variables = relation.source().get().source().dataSourceCls().envVars()
    found: int = stream.sparkSession._jvm.System.identityHashCode(variables)
    return found
