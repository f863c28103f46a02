"""Pipelines in Python and YAML become the same graph; errors are reported with their location."""

import subprocess
import sys
from pathlib import Path

import pytest
from pipelines.pipeline_files import ORDERS_PYTHON, ORDERS_YAML, written

import moldau.pipelines as mp
from moldau.core.pipelines.graph import (
    Delivery,
    Flow,
    FormatKind,
    Mode,
    OnError,
    Pipeline,
    Sql,
    Table,
    Topic,
)
from moldau.core.pipelines.graph_checks import order_of, sources_of
from moldau.core.pipelines.sql_inputs import tables_in

NOVEMBER_MS = "1793491200000"


def shape(pipeline: Pipeline) -> dict[str, object]:
    """Everything but the locations."""
    return {
        name: (flow.inputs, flow.mode, flow.into.name if isinstance(flow.into, Topic) else None)
        for name, flow in pipeline.flows.items()
    }


def test_python_and_yaml_are_one_graph(tmp_path: Path) -> None:
    from_yaml = mp.load(written(tmp_path, "orders.yaml", ORDERS_YAML))
    from_python = mp.load(written(tmp_path, "orders.py", ORDERS_PYTHON))
    assert shape(from_yaml) == shape(from_python)
    assert shape(from_yaml) == {
        "big": (("orders",), Mode.APPEND, "orders.big"),
        "per_user": (("orders",), Mode.UPSERT, "orders.per_user"),
    }
    assert from_yaml.name == from_python.name == "orders"
    assert from_yaml.delivery is Delivery.EXACTLY_ONCE
    assert from_yaml.trigger == from_python.trigger
    assert [example.name for example in from_yaml.examples] == [
        example.name for example in from_python.examples
    ]


def test_a_source_keeps_what_the_file_says(tmp_path: Path) -> None:
    orders = mp.load(written(tmp_path, "orders.yaml", ORDERS_YAML)).sources["orders"]
    assert isinstance(orders, Topic)
    assert (orders.name, orders.start, orders.dead_letter) == ("orders", NOVEMBER_MS, "orders.dlq")
    assert orders.on_error is OnError.DEAD_LETTER
    assert orders.max_offsets_per_trigger == 500000
    assert orders.format.kind is FormatKind.JSON
    assert (orders.spot.line, orders.spot.column) == (6, 5)


def test_a_flow_is_the_decorated_function_itself() -> None:
    def double(numbers: list[int]) -> list[int]:
        return [2 * one for one in numbers]

    assert mp.flow()(double) is double
    assert double([1, 2]) == [2, 4]


def test_a_yaml_file_includes_python(tmp_path: Path) -> None:
    written(tmp_path, "flows.py", ORDERS_PYTHON)
    mixed = """\
name: mixed
python: flows.py
steps:
  huge: {sql: SELECT * FROM big WHERE amount > 1000, into: {table: lake, partition_by: user}}
"""
    found = mp.load(written(tmp_path, "mixed.yaml", mixed))
    assert found.name == "mixed"
    assert [flow.name for flow in order_of(found)] == ["big", "per_user", "huge"]
    assert sources_of(found, found.flows["huge"]) == ("orders",)
    assert isinstance(found.flows["huge"].into, Table)


def test_a_position_in_sql_is_a_position_in_the_file(tmp_path: Path) -> None:
    found = mp.load(written(tmp_path, "orders.yaml", ORDERS_YAML))
    lines = ORDERS_YAML.splitlines()
    block, one_line = found.flows["per_user"].body, found.flows["big"].body
    assert isinstance(block, Sql)
    assert isinstance(one_line, Sql)
    assert lines[block.spot_of(2, 1).line - 1].strip().startswith("FROM orders WATERMARK")
    spot = one_line.spot_of(1, 15)
    assert lines[spot.line - 1][spot.column - 1 :].startswith("orders WHERE")


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT * FROM orders WHERE amount > 100", ["orders"]),
        ("SELECT a.x FROM a JOIN `b` ON a.id = b.id", ["a", "b"]),
        ("select * from a, b where a.x = b.y", ["a", "b"]),
        ("WITH t AS (SELECT * FROM a) SELECT * FROM t", ["a", "t"]),
        ("SELECT extract(year FROM ts) FROM a -- FROM b", ["a"]),
        ("SELECT ' FROM b' FROM (SELECT * FROM a) x, c", ["a", "c"]),
        ("SELECT * FROM a WHERE x IS DISTINCT FROM y", ["a"]),
        (
            "SELECT * FROM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE LEFT JOIN b USING (id)",
            ["a", "b"],
        ),
        ("SELECT * FROM a WHERE id IN (SELECT id FROM b) GROUP BY x, y", ["a", "b"]),
        ("SELECT /* FROM z */ 1", []),
    ],
)
def test_tables_of_sql_are_found(text: str, tables: list[str]) -> None:
    assert list(tables_in(text)) == tables


def yaml_with(old: str, new: str) -> str:
    assert old in ORDERS_YAML
    return ORDERS_YAML.replace(old, new)


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (yaml_with("delivery: exactly", "delivary: exactly"), "2:1", "did you mean delivery?"),
        (yaml_with("exactly_once", "exacly_once"), "2:11", "did you mean exactly_once?"),
        (yaml_with("trigger: 1s", "trigger: soon"), "3:10", "write 500ms, 10s, 5m or 2h"),
        (yaml_with("mode: upsert", "mode: upset"), "21:11", "did you mean upsert?"),
        (yaml_with("format: json", "format: jsn"), "7:13", "did you mean json?"),
        (yaml_with("key: user, compacted", "kee: user, compacted"), "22:36", "did you mean key?"),
        (
            yaml_with("dead_letter: orders.dlq", "dead_letter: orders"),
            "6:5",
            "read its own dead letters",
        ),
        (yaml_with("  big:\n", "  big: [\n"), "15:9", "not YAML"),
        (yaml_with("FROM orders WHERE", "FROM oders WHERE"), "14:5", "did you mean orders?"),
        (
            yaml_with("{topic: orders.per_user, key: user,", "{topic: orders.per_user,"),
            "17:5",
            "needs a key",
        ),
        (
            yaml_with("topic: orders.per_user", "topic: orders.big"),
            "17:5",
            "only flows in mode append",
        ),
        (yaml_with("topic: orders.big", "topic: orders"), "14:5", "it would never end"),
        (yaml_with("expect: {big:", "expect: {bag:"), "24:5", "did you mean big?"),
        (yaml_with("given: {orders:", "given: {order:"), "24:5", "did you mean orders?"),
        (
            yaml_with('    schema: "id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP"\n', ""),
            "6:5",
            "has no schema",
        ),
        (
            yaml_with("max_offsets_per_trigger: 500000", "max_offsets_per_trigger: many"),
            "11:30",
            "whole number",
        ),
        (
            yaml_with("{topic: orders.big, key: user}", "{table: t, format: postgres}"),
            "15:11",
            "format must be parquet, delta or iceberg, not 'postgres'",
        ),
        (
            yaml_with("start: {timestamp: 2026-11-01T00:00:00Z}", "start: earlyest"),
            "9:12",
            "did you mean earliest?",
        ),
        (
            yaml_with("    topic: orders\n", ""),
            "6:5",
            "needs one of topic, files, http and postgres",
        ),
        (
            "sources: {a: {http: 'http://x', format: xml}}",
            "1:14",
            "the format of answers must be json, json_lines, csv, text",
        ),
        (
            "sources: {a: {http: 'http://x', cursor: {param: since, lst: id}}}",
            "1:14",
            "did you mean last?",
        ),
        ("sources: {a: {http: 'http://x', evry: 5s}}", "1:33", "did you mean every?"),
        ("sources: {a: {http: 'http://x', every: soon}}", "1:14", "is not a duration"),
        ("name: a\nsteps: 5\n", "2:8", "steps must be a mapping"),
        ("steps: {a: {sql: SELECT x, y FROM z}}", "1:28", "a comma needs quotes"),
        ("", "1:1", "the file is empty"),
        ("name: a\nname: b\n", "2:1", "appears twice"),
    ],
)
def test_invalid_yaml_is_reported_with_its_location(
    tmp_path: Path, content: str, place: str, message: str
) -> None:
    path = written(tmp_path, "wrong.yaml", content)
    with pytest.raises(mp.PipelineError) as caught:
        mp.load(path)
    first = str(caught.value).splitlines()[0]
    assert message in str(caught.value)
    assert first.startswith(f"{path}:{place}: "), first


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("def big(orders)", "def big(order)", 12, "did you mean orders?"),
        ("def big(orders)", "def big(per_user)", 12, "read the topic that it writes"),
        ('mode="upsert"', 'mode="upset"', 17, "did you mean upsert?"),
        ("import moldau.pipelines as mp", "import nothing_of_this_name", 1, "No module named"),
        ("return orders.where", "return return", 14, "invalid syntax"),
        ("def big(orders)", "def big(big)", 12, "a cycle: big <- big"),
        ('start="earliest"', "start='never'", 4, "start must be latest"),
    ],
)
def test_errors_in_python_files_are_reported_with_their_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in ORDERS_PYTHON
    path = written(tmp_path, "wrong.py", ORDERS_PYTHON.replace(old, new))
    with pytest.raises(mp.PipelineError) as caught:
        mp.load(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}:")


def test_a_cycle_of_two_flows_is_detected() -> None:
    topic = mp.topic("t")
    spot = topic.spot
    flows = {
        "a": Flow(name="a", inputs=("b",), body=Sql("", spot), spot=spot, into=topic),
        "b": Flow(name="b", inputs=("a",), body=Sql("", spot), spot=spot),
    }
    from moldau.core.pipelines.graph_checks import problems_of

    found = problems_of(Pipeline(name="p", spot=spot, flows=flows, delivery=Delivery.AT_LEAST_ONCE))
    assert [problem.text for problem in found] == ["a cycle: a <- b <- a"]


@pytest.mark.parametrize("name", ["nowhere.yaml", "readme.txt"])
def test_a_missing_or_invalid_file_is_an_error(tmp_path: Path, name: str) -> None:
    written(tmp_path, "readme.txt", "hello")
    with pytest.raises(mp.PipelineError, match=name):
        mp.load(tmp_path / name)


def test_declaring_needs_no_spark() -> None:
    """A graph can be checked where Spark is not installed."""
    code = (
        "import sys, moldau.pipelines; assert not {'pyspark', 'yaml', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        (
            "as mp\n",
            "as mp; import nowhere_at_all\n",
            "1:32",
            "ModuleNotFoundError: No module named 'nowhere_at_all'",
        ),
        (
            "@mp.flow(into=",
            "@mp.flow(mod='append', into=",
            "12:2",
            "mp.flow has no 'mod'; did you mean mode?",
        ),
        (
            "@mp.flow(into=",
            "@mp.flow(xyz='append', into=",
            "12:2",
            "mp.flow has no 'xyz'; choose from into, mode, on_error, expect",
        ),
        (
            '@mp.flow(into=mp.topic("orders.big", key="user"))',
            "@mp.flow",
            "12:2",
            "write @mp.flow(), with parentheses",
        ),
        ('start="earliest"', "partitons=3", "4:10", "did you mean partitions?"),
        (
            'start="earliest"',
            'partitions="three"',
            "4:10",
            "partitions must be a whole number from 1, not 'three'",
        ),
        (
            'start="earliest"',
            "max_offsets_per_trigger=0",
            "4:10",
            "must be a whole number from 1, not 0",
        ),
        (
            "settings = ",
            "x = mp.topic(); settings = ",
            "3:5",
            "missing a required argument: 'name'",
        ),
        ("settings = ", "x = mp.avro(regist=1); settings = ", "3:5", "did you mean registry?"),
        ("@mp.flow(into=", "@mp.flow(mode='apend', into=", "12:2", "did you mean append?"),
        (
            'into=mp.topic("orders.big", key="user")',
            'into="orders.big"',
            "12:2",
            "into must be mp.topic(…), mp.table(…) or mp.postgres(…), not 'orders.big'",
        ),
        ('start="earliest"', 'start="erliest"', "4:10", "did you mean earliest?"),
        ("settings = ", "x = 1; settings = nothing", "3:19", "NameError: name 'nothingmp'"),
    ],
)
@pytest.mark.parametrize("is_relative", [True, False])
def test_errors_in_python_are_reported_with_line_and_column(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    place: str,
    message: str,
    is_relative: bool,
) -> None:
    assert old in ORDERS_PYTHON
    path = written(tmp_path, "wrong.py", ORDERS_PYTHON.replace(old, new, 1))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mp.PipelineError) as caught:
        mp.load(path.name if is_relative else path)
    assert f"wrong.py:{place}: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("helper", "place", "message"),
    [
        ("x = 1\ny = x + missing\n", "2:9", "NameError: name 'missing' is not defined; "),
        ("x = 1\nimport nowhere_at_all\n", "2:1", "No module named 'nowhere_at_all'; "),
        ("x = 1\ny = = 2\n", "2:5", "invalid syntax; "),
        ("import json\n\ny = json.loads('{')\n", "3:5", "JSONDecodeError: Expecting property"),
    ],
)
def test_an_error_in_an_imported_module_is_reported_with_its_line(
    tmp_path: Path, helper: str, place: str, message: str
) -> None:
    name = f"helper_{abs(hash(helper))}"
    beside = written(tmp_path, f"{name}.py", helper)
    path = written(
        tmp_path, "orders.py", ORDERS_PYTHON.replace("as mp\n", f"as mp\nimport {name}\n")
    )
    with pytest.raises(mp.PipelineError) as caught:
        mp.load(path)
    assert str(caught.value).startswith(f"{beside}:{place}: ")
    assert message in str(caught.value)
    assert str(caught.value).endswith(f"; called from {path}:2:1")


TARGET = "{topic: orders.big, key: user}"
MADE = "{topic: orders.big, key: user, partitions: 6, replication: 3, config: {%s}}"


def test_a_target_topic_has_settings_for_its_creation(tmp_path: Path) -> None:
    config = "retention.ms: 86400000, preallocate: true"
    yaml = mp.load(written(tmp_path, "a.yaml", yaml_with(TARGET, MADE % config))).flows["big"].into
    python = mp.topic(
        "orders.big",
        key="user",
        partitions=6,
        replication=3,
        config={"retention.ms": 86400000, "preallocate": True},
    )
    for one in (yaml, python):
        assert isinstance(one, Topic)
        assert (one.partitions, one.replication) == (6, 3)
        assert dict(one.config) == {"retention.ms": "86400000", "preallocate": "true"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            yaml_with(TARGET, MADE % "retention.mss: 1"),
            "'retention.mss'; did you mean retention.",
        ),
        (
            yaml_with(TARGET, MADE.replace("6", "0") % ""),
            "partitions must be a whole number from 1",
        ),
        (
            yaml_with("    topic: orders\n", "    topic: orders\n    partitions: 6\n"),
            "source 'orders' has no 'partitions'; it is for topics that are written, under 'into'",
        ),
        (
            yaml_with("compacted: true", "compacted: true, config: {cleanup.policy: delete}"),
            "either compacted or cleanup.policy",
        ),
    ],
)
def test_an_impossible_target_topic_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(mp.PipelineError) as caught:
        mp.load(written(tmp_path, "orders.yaml", content))
    assert message in str(caught.value)


BROKERS = "a pipeline names its brokers once, at the top: settings: {bootstrap.servers: host:port}"
OF_TARGETS = "source 'a' has no 'partitions'; it is for topics that are written, under 'into'"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("bootstrap: here:9092\n" + ORDERS_YAML, f"a pipeline has no 'bootstrap'; {BROKERS}"),
        (
            yaml_with("    topic: orders\n", "    topic: orders\n    bootstrap: here:9092\n"),
            f"source 'orders' has no 'bootstrap'; {BROKERS}",
        ),
        (yaml_with("    topic: orders\n", "    bootstrap.servers: here:9092\n"), BROKERS),
        (yaml_with(TARGET, "{topic: orders.big, brokers: here:9092}"), BROKERS),
        ("lookups: {a: {tabel: lake/a}}", "lookup 'a' has no 'tabel'; did you mean table?"),
        ("lookups: {a: {postgress: a, url: x}}", "'postgress'; did you mean postgres?"),
        ("lookups: {a: {schema: id INT}}", "lookup 'a' needs table or postgres"),
        (yaml_with(TARGET, "{tabel: lake/a}"), "has no 'tabel'; did you mean table?"),
        ("sources: {a: {postgress: a, url: x}}", "'postgress'; did you mean postgres?"),
        ("sources: {a: {topic: t, partition: 3}}", "'partition'; did you mean partitions?"),
        *(
            (f"sources: {{a: {{{kind}: x, partitions: 3}}}}", OF_TARGETS)
            for kind in ("files", "http", "postgres")
        ),
    ],
)
def test_misspelt_or_misplaced_keys_are_errors(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(mp.PipelineError) as caught:
        mp.load(written(tmp_path, "orders.yaml", content))
    assert message in str(caught.value)
