"""The sink `moldau` and Spark's own connector, given the same rows: both write the same records to
the same partitions, and refuse the same input.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from interop.peers.java_tools import JavaTools
from interop.peers.spark_cases import run_cases
from interop.peers.toolchains import Spark
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from moldau import Admin
from moldau.admin import NewTopic
from moldau.protocol.errors import MoldauError
from moldau.spark.source.schema import HEADERS
from pyspark_moldau import DefaultSource

pytestmark = pytest.mark.interop

JOB = Path(__file__).with_name("spark_sink_job.py")
PARTITIONS = 5
TEXT, BYTES, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()
KEYS = ["", "a", "é", "key", "key", "longer than most keys are", "\x00", *map(str, range(40))]
Rows = list[tuple[Any, ...]]


def kind(**columns: DataType) -> StructType:
    return StructType([StructField(name, one) for name, one in columns.items()])


def written_cases(first: str, second: str) -> dict[str, tuple[StructType, Rows, dict[str, str]]]:
    into = {"topic": first}
    headers = [[("h", b"1"), ("h", None), ("", b"")], [], None, [("é", b"\xff" * 100_000)]]
    return {
        "texts": (kind(key=TEXT, value=TEXT), [(key, f"v{key}") for key in KEYS], into),
        "bytes": (
            kind(value=BYTES, key=BYTES),
            [(b"\xff" + key.encode(), key.encode()) for key in KEYS],
            into,
        ),
        "nulls": (
            kind(key=TEXT, value=TEXT),
            [("k", None), (None, "v"), (None, None), ("", ""), (None, "")],
            into,
        ),
        "values alone": (kind(value=TEXT), [(key,) for key in KEYS], into),
        "headers": (
            kind(key=TEXT, value=TEXT, headers=HEADERS),
            [("k", "v", one) for one in headers],
            into,
        ),
        "partitions": (
            kind(partition=INT, key=TEXT, value=TEXT),
            [(number % PARTITIONS, key, key) for number, key in enumerate(KEYS)],
            into,
        ),
        "some partitions": (
            kind(partition=INT, key=TEXT, value=TEXT),
            [(None if number % 2 else 3, key, key) for number, key in enumerate(KEYS)],
            into,
        ),
        "the topic of a column": (
            kind(topic=TEXT, key=TEXT, value=TEXT),
            [([first, second][number % 2], key, key) for number, key in enumerate(KEYS)],
            {},
        ),
        "the option comes before the column": (
            kind(topic=TEXT, key=TEXT, value=TEXT),
            [(None if number % 3 else "nowhere", key, key) for number, key in enumerate(KEYS)],
            into,
        ),
        "other columns": (
            kind(key=TEXT, value=TEXT, offset=LONG, timestampType=INT, more=TEXT),
            [("k", "v", 7, 1, "x")],
            into,
        ),
        "no rows": (kind(key=TEXT, value=TEXT), [], into),
        "compressed": (
            kind(key=TEXT, value=TEXT),
            [(key, key * 100) for key in KEYS],
            into | {"kafka.compression.type": "lz4"},
        ),
    }


def refused_cases(first: str) -> dict[str, tuple[StructType, Rows, dict[str, str]]]:
    into = {"topic": first}
    plain = kind(key=TEXT, value=TEXT)
    pair = StructType([StructField("key", TEXT), StructField("value", TEXT)])
    row: Rows = [("k", "v")]
    impatient = into | {"kafka.max.block.ms": "3000"}
    return {
        "no topic": (plain, row, {}),
        "a row without a topic": (kind(topic=TEXT, value=TEXT), [(None, "v")], {}),
        "a topic that is a number": (kind(topic=INT, value=TEXT), [(1, "v")], {}),
        "a name that no topic can have": (plain, row, impatient | {"topic": "a b"}),
        "no value": (kind(key=TEXT), [("k",)], into),
        "a value that is a number": (kind(value=INT), [(1,)], into),
        "a key that is a number": (kind(key=LONG, value=TEXT), [(1, "v")], into),
        "a partition that is long": (kind(partition=LONG, value=TEXT), [(1, "v")], into),
        "a partition below 0": (kind(partition=INT, value=TEXT), [(-1, "v")], into),
        "a partition that is not there": (
            kind(partition=INT, value=TEXT),
            [(PARTITIONS, "v")],
            impatient,
        ),
        "headers that are texts": (
            kind(value=TEXT, headers=ArrayType(pair)),
            [("v", [("h", "x")])],
            into,
        ),
        "headers that are a map": (
            kind(value=TEXT, headers=MapType(TEXT, BYTES)),
            [("v", {"h": b"x"})],
            into,
        ),
        "a header without a name": (
            kind(value=TEXT, headers=HEADERS),
            [("v", [(None, b"x")])],
            into,
        ),
        "a row that is too large": (
            plain,
            [("k", "v" * 10_000)],
            into | {"kafka.max.request.size": "5000"},
        ),
        "acks that are none": (plain, row, into | {"kafka.acks": "7"}),
        "compression that is none": (plain, row, into | {"kafka.compression.type": "none at all"}),
        "a serializer": (plain, row, into | {"kafka.key.serializer": "a.B"}),
        "another serializer": (plain, row, into | {"kafka.value.serializer": "a.B"}),
        "no broker": (plain, row, into | {"kafka.bootstrap.servers": ""}),
    }


def as_json(value: Any) -> dict[str, str]:
    assert isinstance(value, bytes)
    return {"hex": value.hex()}


def write(schema: StructType, rows: Rows, options: dict[str, str]) -> str:
    """Writes as Spark's tasks do, in one task."""
    try:
        writer: Any = DefaultSource(CaseInsensitiveDict(options)).writer(schema, False)
        columns = to_arrow_schema(schema, timezone="UTC")
        names = schema.fieldNames()
        cells = [dict(zip(names, row, strict=True)) for row in rows]
        for cell in cells:
            if isinstance(cell.get("headers"), list):
                pairs = cell["headers"]
                cell["headers"] = [{"key": key, "value": value} for key, value in pairs]
        writer.write(iter([pa.RecordBatch.from_pylist(cells, columns)]))
    except MoldauError as error:
        return f"refused: {error}"
    return "written"


def records(address: str, topic: str) -> list[dict[str, Any]]:
    known = {"kafka.bootstrap.servers": address, "subscribe": topic, "includeHeaders": "true"}
    found = DefaultSource(CaseInsensitiveDict(known))
    reader: Any = found.reader(found.schema())
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def by_partition(rows: list[dict[str, Any]], *, is_placed: bool) -> Any:
    """For rows with a partition of their own, each partition's records in order. Others may go to
    any partition.
    """
    found: dict[int, list[Any]] = {}
    for row in rows:
        headers = [(one["key"], one["value"]) for one in row["headers"] or []]
        cell = (row["key"], row["value"], tuple(headers))
        found.setdefault(row["partition"] if is_placed else 0, []).append(cell)
    return found if is_placed else Counter(one for cells in found.values() for one in cells)


def test_both_sinks_write_and_refuse_the_same(
    connector: Spark, tools: JavaTools, name: str, tmp_path: Path
) -> None:
    address = tools.server.address
    servers = {"kafka.bootstrap.servers": address}
    sides: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}
    topics: dict[str, list[str]] = {}
    for side, cases in sides.items():
        first, second = f"{name}-{side}-%d", f"{name}-{side}-more"
        given = written_cases("TOPIC", second) | refused_cases("TOPIC")
        for number, (what, (schema, rows, options)) in enumerate(given.items()):
            topic = first % number
            cells = [[topic if cell == "TOPIC" else cell for cell in row] for row in rows]
            named = {key: topic if value == "TOPIC" else value for key, value in options.items()}
            case = {"name": what, "schema": schema, "rows": cells, "options": servers | named}
            cases.append(case)
            topics.setdefault(what, []).append(topic)
        create(address, [second, *(first % number for number in range(len(given)))])
    theirs = run_cases(
        connector,
        JOB,
        json.dumps(
            [case | {"schema": case["schema"].jsonValue()} for case in sides["theirs"]],
            default=as_json,
        ),
        tmp_path,
    )
    different = {}
    for case in sides["ours"]:
        what = case["name"]
        found = write(case["schema"], [tuple(row) for row in case["rows"]], case["options"])
        assert "\n" not in found
        if found.partition(":")[0] != theirs[what].partition(":")[0]:
            different[what] = f"{found} here, {theirs[what]} there"
            continue
        is_placed = what not in {"nulls", "values alone"}
        here, there = (
            by_partition(records(address, topic), is_placed=is_placed) for topic in topics[what]
        )
        if here != there:
            different[what] = f"{here} here, {there} there"[:2000]
        assert bool(here) == (found == "written" and what != "no rows"), (what, found)
    assert not different, json.dumps(different, indent=1)
    more = [by_partition(records(address, f"{name}-{side}-more"), is_placed=True) for side in sides]
    assert more[0]
    assert more[0] == more[1]


def create(address: str, topics: list[str]) -> None:
    with Admin(address) as admin:
        wanted = [NewTopic(name=one, partitions=PARTITIONS) for one in topics]
        for made in admin.create_topics(wanted).values():
            assert not isinstance(made, Exception), made
