"""Runs the tests of a pipeline's file: rows in, rows out, in one batch and without a broker."""

import json
import math
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from pyspark.sql import functions as sql

from moldau.core.connectors.postgres_sql import DELETED
from moldau.core.pipelines.graph import (
    Example,
    Files,
    FormatKind,
    Lookup,
    Pipeline,
    Postgres,
    Source,
    Table,
    Topic,
)
from moldau.core.pipelines.graph_checks import sources_of
from moldau.pipelines.compile.expectations import check_conditions, first_failed, passing_rows
from moldau.pipelines.compile.frames import frames_of
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.exact_times import EXACT_TIMES
from moldau.spark.runtime.spark_errors import cause_of

_SHOWN_MAX = 5


class ExampleResult(NamedTuple):
    example: Example
    problems: tuple[str, ...]
    """Empty if the test passes."""


def try_example(session: Any, pipeline: Pipeline, example: Example) -> ExampleResult:
    """Runs a test. Columns that an expected row does not name may have any value; the order of rows
    does not matter.
    """
    own = session.newSession()
    try:
        sources = {
            name: _expected_rows(given_rows(own, source, example.given.get(name, [])), source)
            for name, source in pipeline.sources.items()
        }
        lookup_frames = {
            name: given_rows(own, lookup, example.given.get(name, []))
            for name, lookup in pipeline.lookups.items()
        }
        frames = frames_of(own, pipeline, sources | lookup_frames)
        problems: list[str] = []
        for name, expected in example.expect.items():
            assert sources_of(pipeline, pipeline.flows[name])
            rows = passing_rows(frames[name], pipeline.flows[name])
            problems += _differences(name, _plain_rows(rows), expected)
    except Exception as error:  # noqa: BLE001 - Spark and users raise all sorts
        return ExampleResult(example, (cause_of(error),))
    return ExampleResult(example, tuple(problems))


def given_rows(session: Any, source: Source | Lookup, rows: list[dict[str, Any]]) -> Any:
    """The rows as a source provides them. They pass through JSON: texts become times and dates."""
    columns = _columns(source)
    texts = [(json.dumps(row, default=_as_text),) for row in rows]
    lines = session.createDataFrame(texts, "text string")
    # An invalid row is an error in the test.
    parsed = lines.select(sql.from_json("text", columns, {"mode": "FAILFAST"}).alias("row"))
    frame = parsed.select("row.*")
    if "_key" in frame.columns:
        frame = frame.withColumn("_key", sql.col("_key").cast("binary"))
    if isinstance(source, Topic) and source.format.kind is FormatKind.BYTES:
        frame = frame.withColumn("value", sql.col("value").cast("binary"))
    return frame


def _expected_rows(rows: Any, source: Source) -> Any:
    """The rows that meet the source's expectations, which are those that flows see."""
    if not source.expect:
        return rows
    check_conditions(rows, source.expect)
    return rows.where(first_failed(source.expect).isNull())


_RECORD_KINDS = {
    "key": "STRING",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "op": "STRING",
    "ts_ms": "BIGINT",
}


def _columns(source: Source | Lookup) -> str:
    if isinstance(source, Files):
        return source.schema or "value STRING"
    if isinstance(source, Postgres | Table):
        if source.schema is None:
            name = source.name if isinstance(source, Postgres) else source.path
            raise MoldauError(f"{source.spot}: a test needs the schema of table {name}")
        return source.schema
    parts = [source.format.schema or "value STRING"]
    if source.format.kind is FormatKind.DEBEZIUM:
        parts.append(f"{DELETED} BOOLEAN")
    if isinstance(source, Topic):
        parts += [f"_{name} {_RECORD_KINDS[name]}" for name in source.columns]
    return ", ".join(parts)


def _plain_rows(frame: Any) -> list[dict[str, Any]]:
    names = frame.columns
    text = sql.to_json(sql.struct(*[sql.col(f"`{name}`") for name in names]), EXACT_TIMES)
    found = [json.loads(row[0]) for row in frame.select(text).collect()]
    return [{name: row.get(name) for name in names} for row in found]


def _differences(
    flow: str, found: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> list[str]:
    left = list(found)
    missing = []
    for row in expected:
        fitting = next((candidate for candidate in left if _fits(candidate, row)), None)
        if fitting is None:
            missing.append(row)
        else:
            left.remove(fitting)
    lines = [f"{flow}: expected, but missing: {_shown(row)}" for row in missing[:_SHOWN_MAX]]
    lines += [f"{flow}: not expected: {_shown(row)}" for row in left[:_SHOWN_MAX]]
    more = max(0, len(missing) - _SHOWN_MAX) + max(0, len(left) - _SHOWN_MAX)
    return [*lines, f"{flow}: and {more} more"] if more else lines


def _fits(row: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(name in row and _same(row[name], value) for name, value in expected.items())


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict) and isinstance(found, dict):
        return _fits(found, expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(expected, float) and isinstance(found, int | float):
        return math.isclose(found, expected, rel_tol=1e-9)
    return bool(_moment(found) == _moment(expected))


def _moment(value: Any) -> Any:
    """A value in a form in which equal times compare equal."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > len("2026-11-01"):
        try:
            return _moment(datetime.fromisoformat(value))
        except ValueError:
            return value
    return value


def _as_text(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _shown(row: dict[str, Any]) -> str:
    return json.dumps(row, default=_as_text, ensure_ascii=False)
