"""Delta as a target whose flow changes: what readers find, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import moldau.pipelines as mp
from moldau.connectors.tables.delta import DeltaTarget
from moldau.core.spark.errors import StaleCheckpointError

pytestmark = pytest.mark.spark
QUERY = "sql.streaming.queryId"


@pytest.fixture
def lake(session: Any, tmp_path: Path) -> Iterator[Path]:
    session.sparkContext.setLocalProperty(QUERY, "query-1")
    yield tmp_path / "lake"
    session.sparkContext.setLocalProperty(QUERY, None)


def put(lake: Path, rows: Any, batch: int, **table: Any) -> None:
    """Writes one batch, in a new run."""
    DeltaTarget(mp.table(lake, format="delta", **table), "shop.lake").write(rows, batch)


def rows_of(lake: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(lake).to_pyarrow_table().to_pydict()
    return sorted(zip(*found.values(), strict=True), key=repr)


def test_columns_may_be_added_and_removed_but_not_change(session: Any, lake: Path) -> None:
    put(lake, session.range(2), 0)
    put(lake, session.sql("SELECT 2L AS id, 'new' AS word, struct(1 AS x) AS part"), 1)
    put(lake, session.sql("SELECT 'old' AS word"), 2)
    whole = [(0, None, None), (1, None, None), (2, "new", {"x": 1}), (None, "old", None)]
    assert rows_of(lake) == whole
    version, files = DeltaTable(lake).version(), set(lake.rglob("*"))
    for statement, message in (
        ("SELECT 1 AS word", "its column word is string, and the flow's is integer"),
        ("SELECT struct('a' AS x) AS part", "its column part is .*integer.* flow's is .*string"),
        ("SELECT 1L AS id, 'a' AS WORD", "Duplicate field name .*WORD"),
    ):
        with pytest.raises(mp.MoldauError, match=f"table .*/lake: .*{message}") as caught:
            put(lake, session.sql(statement), 3)
        assert "\n" not in str(caught.value)
    with pytest.raises(mp.MoldauError, match="partitioned by nothing, and partition_by says word"):
        put(lake, session.sql("SELECT 'a' AS word"), 3, partition_by="word")
    assert (DeltaTable(lake).version(), set(lake.rglob("*"))) == (version, files)
    # Committed batches, and the next ones.
    put(lake, session.sql("SELECT 'old' AS word"), 2)
    assert rows_of(lake) == whole
    with pytest.raises(StaleCheckpointError, match="it is an older copy"):
        put(lake, session.range(2), 0)


def test_a_column_that_must_have_a_value(session: Any, lake: Path) -> None:
    schema = session.sql("SELECT 1L AS id, 'a' AS word").toArrow().schema
    strict = [field.with_nullable(field.name != "id") for field in schema]
    import pyarrow as pa

    DeltaTable.create(lake, pa.schema(strict))
    for statement in ("SELECT 'a' AS word", "SELECT CAST(NULL AS BIGINT) AS id"):
        with pytest.raises(mp.MoldauError, match=r"/lake: its column id must have a value"):
            put(lake, session.sql(statement), 0)
    put(lake, session.sql("SELECT coalesce(CAST(NULL AS BIGINT), 7L) AS id"), 0)
    assert rows_of(lake) == [(7, None)]
