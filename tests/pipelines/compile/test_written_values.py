"""Values that one flow writes are read unchanged by another: times to the microsecond."""

import json
from typing import Any

import pytest
from client.registry_server import RegistryServer

import moldau.pipelines as mp
from moldau.client.schemas.json_schema import JsonSchemaDeserializer
from moldau.client.schemas.registry import SchemaRegistry
from moldau.core.pipelines.graph import Flow, OnError, Pipeline, Spot, Topic
from moldau.pipelines.compile.dead_letters import step_dead_letters
from moldau.pipelines.compile.values import good_rows, read_values, written_rows

pytestmark = pytest.mark.spark
SPOT = Spot("here", 1)
SCHEMA = "id INT, at TIMESTAMP, local TIMESTAMP_NTZ, days ARRAY<TIMESTAMP>"
RECORD = "topic STRING, key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
MOMENT = "2026-11-01T10:00:00.123456"


def moments(session: Any, error: str) -> Any:
    local = f"TIMESTAMP_NTZ '{MOMENT}'"
    return session.sql(
        f"SELECT 1 AS id, TIMESTAMP '{MOMENT}Z' AS at, {local} AS local, "
        f"array(TIMESTAMP '{MOMENT}Z') AS days, {error} AS _error"
    )


def encoded(rows: Any, into: Topic) -> list[Any]:
    flow = Flow(
        name="sent", inputs=(), body=lambda: None, spot=SPOT, into=into,
        on_error=OnError.DEAD_LETTER,
    )  # fmt: skip
    letters = step_dead_letters(rows, flow, "letters", Pipeline(name="times", spot=SPOT))
    return [frame.collect() for frame in (written_rows(rows, flow), letters)]


def test_times_are_written_and_read_to_the_microsecond(session: Any) -> None:
    into = mp.topic("times", key=("id", "at"), format=mp.json(SCHEMA))
    (row,), () = encoded(moments(session, "CAST(NULL AS STRING)"), into)
    told = {"id": 1, "at": f"{MOMENT}Z", "local": MOMENT, "days": [f"{MOMENT}Z"]}
    assert json.loads(row.value) == told
    assert json.loads(row.key) == {"id": 1, "at": f"{MOMENT}Z"}
    records = session.createDataFrame([row], RECORD).selectExpr(
        "*", "0 AS partition", "0L AS offset"
    )
    read = good_rows(read_values(records, into, "times"))
    assert read.collect() == moments(session, "''").drop("_error").collect()
    # Bad rows too.
    (), (letter,) = encoded(moments(session, "'bad'"), into)
    assert json.loads(letter.value) == told


def test_times_in_csv_and_in_a_format_of_the_users_own(session: Any) -> None:
    rows = moments(session, "CAST(NULL AS STRING)").drop("days")
    (row,), () = encoded(rows, mp.topic("times", format=mp.csv("id INT")))
    assert row.value.decode() == f"1,{MOMENT}Z,{MOMENT}"
    own = mp.json("id INT", timestampFormat="yyyy/MM/dd")
    (row,), () = encoded(rows, mp.topic("times", format=own))
    assert json.loads(row.value)["at"] == "2026/11/01"


def test_timestamps_with_a_schema_id_are_independent_of_time_zones(session: Any) -> None:
    """Neither on that of the session nor on that of the machine where tasks run."""
    with RegistryServer() as server:
        into = mp.topic("times", format=mp.json_schema(server.url, "id INT", json_schema="{}"))
        for zone in ("UTC", "Asia/Tokyo"):
            own = session.newSession()
            own.conf.set("spark.sql.session.timeZone", zone)
            (row,), () = encoded(moments(own, "CAST(NULL AS STRING)"), into)
            found = JsonSchemaDeserializer(SchemaRegistry(server.url))(bytes(row.value))
            told = MOMENT + "+00:00"
            assert found == {"id": 1, "at": told, "local": MOMENT, "days": [told]}
