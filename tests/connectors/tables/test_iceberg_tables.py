"""Iceberg as a target: each batch is one snapshot, once, despite other writers; and what other
readers find.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyiceberg.catalog import load_catalog

import moldau.pipelines as mp
from moldau.connectors.tables.iceberg import IcebergTarget
from moldau.core.spark.errors import StaleCheckpointError

pytestmark = pytest.mark.spark
QUERY = "sql.streaming.queryId"
NAME = "shop.lake"


@pytest.fixture
def checkpoint(session: Any, tmp_path: Path) -> Iterator[Path]:
    """A checkpoint as Spark writes it before each batch, with the query's id."""
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    session.sparkContext.setLocalProperty(QUERY, "query-1")
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    yield tmp_path / "checkpoint"
    session.sparkContext.setLocalProperty(QUERY, None)


def planned(checkpoint: Path, batch: int, end: int) -> None:
    (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"t":{{"0":{end}}}}}')


def written(
    checkpoint: Path, rows: Any, batch: int, kind: type[IcebergTarget] = IcebergTarget, **table: Any
) -> None:
    """Writes one batch, in a new run."""
    planned(checkpoint, batch, 10 * batch)
    told: dict[str, Any] = {"path": checkpoint.parent / "lake", "format": "iceberg"} | table
    place = mp.table(**told)
    kind(place, NAME, str(checkpoint)).write(rows, batch)


def table_at(folder: Path) -> Any:
    uri = f"sqlite:///{folder}/iceberg.db"
    return load_catalog("moldau", type="sql", uri=uri).load_table(("default", "lake"))


def columns_of(table: Any, *names: str) -> list[tuple[Any, ...]]:
    """Read by pyiceberg and by polars, which has a reader of its own."""
    found = table.scan().to_arrow().select(names).to_pydict()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        other = pl.scan_iceberg(table.metadata_location, reader_override="native")
        seen = other.select(names).collect().rows()
    rows = list(zip(*found.values(), strict=True))
    assert sorted(map(repr, rows)) == sorted(map(repr, seen))
    return rows


def days(session: Any, *values: str | None) -> Any:
    frame = session.createDataFrame([(n, day) for n, day in enumerate(values)], "n INT, day STRING")
    return frame.selectExpr(
        "n", "CAST(day AS DATE) AS day", "CAST(day AS TIMESTAMP) AS at",
        "array(n) AS many", "struct(n AS m, day AS d) AS both", "CAST(n AS DECIMAL(9, 2)) AS price",
    )  # fmt: skip


def test_partitions_and_every_kind_of_column(session: Any, checkpoint: Path) -> None:
    rows = days(session, "2026-11-01", "2026-11-02", None, "2026-11-01")
    written(checkpoint, rows, 0, partition_by="day")
    written(checkpoint, rows.where("n = 3"), 1, partition_by="day")
    table = table_at(checkpoint.parent)
    assert sorted(columns_of(table, "n", "price")) == [(n, n) for n in (0, 1, 2, 3, 3)]
    assert {str(kind) for kind in table.schema().as_struct().fields[1:3]} == {
        "2: day: optional date",
        "3: at: optional timestamptz",
    }
    partitions = table.inspect.partitions().to_pydict()
    counted = [
        (str(one["day"]), count)
        for one, count in zip(partitions["partition"], partitions["record_count"], strict=True)
    ]
    assert sorted(counted) == [("2026-11-01", 3), ("2026-11-02", 1), ("None", 1)]
    only = table.scan("day = '2026-11-01'").to_arrow()
    assert sorted(only["n"].to_pylist()) == [0, 3, 3]
    assert only["many"].to_pylist()[0] == [only["both"].to_pylist()[0]["m"]]


def test_a_batch_is_committed_once_and_an_old_checkpoint_is_refused(
    session: Any, checkpoint: Path
) -> None:
    for batch in (0, 0, 1, 1):
        written(checkpoint, session.range(10 * batch, 10 * batch + 10), batch)
    # Without rows there is no snapshot.
    written(checkpoint, session.range(0), 2)
    table = table_at(checkpoint.parent)
    assert sorted(columns_of(table, "id")) == [(n,) for n in range(20)]
    assert len(table.snapshots()) == 2
    text = table.current_snapshot().summary[f"moldau.{NAME}"]
    assert '"moldauBatch":1' in text
    assert '"queryId":"query-1"' in text
    with pytest.raises(StaleCheckpointError, match="the checkpoint is an older copy"):
        written(checkpoint, session.range(5), 0)
    planned(checkpoint, 1, 99)
    target = IcebergTarget(
        mp.table(checkpoint.parent / "lake", format="iceberg"), NAME, str(checkpoint)
    )
    with pytest.raises(StaleCheckpointError, match="committed with other offsets"):
        target.write(session.range(5), 1)
    # A new checkpoint is a new query, which starts where its sources say.
    session.sparkContext.setLocalProperty(QUERY, "query-2")
    written(checkpoint, session.range(20, 21), 0)
    table.refresh()
    assert len(columns_of(table, "id")) == 21


def test_a_batch_is_recognised_when_its_snapshot_has_expired(
    session: Any, checkpoint: Path
) -> None:
    written(checkpoint, session.range(3), 0)
    table = table_at(checkpoint.parent)
    mine = table.current_snapshot().snapshot_id
    table.append(session.range(3, 5).toArrow())
    table.maintenance.expire_snapshots().by_id(mine).commit()
    written(checkpoint, session.range(3), 0)
    table.refresh()
    assert sorted(columns_of(table, "id")) == [(n,) for n in range(5)]


class Overtaken(IcebergTarget):
    """Another writer, `rival`, commits between its writing and its commit."""

    rival: Any

    def _commit(self, *given: Any) -> None:
        type(self).rival()
        super()._commit(*given)


def test_a_concurrent_commit_does_not_duplicate_a_batch(session: Any, checkpoint: Path) -> None:
    rows = session.range(10)
    Overtaken.rival = lambda: written(checkpoint, rows, 0)
    written(checkpoint, rows, 0, Overtaken)
    table = table_at(checkpoint.parent)
    assert len(columns_of(table, "id")) == 10

    Overtaken.rival = lambda: table.append(session.range(100, 101).toArrow())
    written(checkpoint, session.range(10, 20), 1, Overtaken)
    table.refresh()
    assert sorted(columns_of(table, "id")) == [(n,) for n in (*range(20), 100)]
    assert len(table.snapshots()) == 3


def test_columns_may_be_added_and_removed_but_not_change(session: Any, checkpoint: Path) -> None:
    written(checkpoint, session.range(2), 0)
    written(checkpoint, session.sql("SELECT 2L AS id, 'new' AS word"), 1)
    written(checkpoint, session.sql("SELECT 'old' AS word"), 2)
    table = table_at(checkpoint.parent)
    found = sorted(columns_of(table, "id", "word"), key=repr)
    assert found == [(0, None), (1, None), (2, "new"), (None, "old")]
    files = set((checkpoint.parent / "lake").rglob("*.parquet"))
    with pytest.raises(mp.MoldauError, match=r"table .*/lake: .*word.*string.*int") as caught:
        written(checkpoint, session.sql("SELECT 1 AS word"), 3)
    assert "\n" not in str(caught.value)
    with pytest.raises(mp.MoldauError, match="partitioned by nothing, and partition_by says word"):
        written(checkpoint, session.sql("SELECT 'a' AS word"), 3, partition_by="word")
    assert set((checkpoint.parent / "lake").rglob("*.parquet")) == files


def test_a_catalog_of_the_users_own(session: Any, checkpoint: Path) -> None:
    folder = checkpoint.parent
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/own.db", "warehouse": f"{folder}/own"}
    written(checkpoint, session.range(4), 0, path="shop.orders", catalog=catalog)
    table = load_catalog("moldau", **catalog).load_table("shop.orders")
    assert len(columns_of(table, "id")) == 4
    with pytest.raises(mp.MoldauError, match=r"table a\.b: the catalog 'nobodys' cannot be opened"):
        written(checkpoint, session.range(4), 0, path="a.b", catalog="nobodys")
    with pytest.raises(mp.MoldauError, match="only be in folders"):
        written(checkpoint, session.range(4), 0, path="s3://bucket/lake")
