"""The status of a run: its phase, and the meaning of each number."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cli.command import moldau_here

import moldau.pipelines as mp
from moldau.core.pipelines.query_progress import QueryProgress
from moldau.pipelines.run.run_folder import RunFolder, folder_of


def begun(tmp_path: Path) -> tuple[Path, RunFolder]:
    path = tmp_path / "shop.yaml"
    moldau_here("pipeline", "init", path)
    return path, folder_of(mp.load(path), path)


def write(folder: RunFolder, *queries: QueryProgress) -> None:
    told = [one._asdict() for one in queries]
    folder.write("status.json", {"name": "shop", "pid": 7, "error": None, "queries": told})


def test_a_starting_run_shows_its_phase_and_its_duration(tmp_path: Path) -> None:
    path, folder = begun(tmp_path)
    ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    with folder.held():
        folder.write_phase("shop", "starting Spark at local[2]")
        found = folder.read("status.json")
        folder.write("status.json", found | {"since": ago})
        said = moldau_here("pipeline", "status", path).output
        assert said.startswith("shop is starting Spark at local[2], 36")
        write(folder, QueryProgress("orders", ("copied",), "starting", began=ago))
        said = moldau_here("pipeline", "status", path).output
        assert "starting: first batch, 36" in said


def test_numbers_of_the_batch_and_of_the_run_are_distinguished(tmp_path: Path) -> None:
    path, folder = begun(tmp_path)
    one = QueryProgress(
        "orders", ("copied",), "running", batch=3, rows=11, rows_total=4444, dead_letters=5,
        dead_letters_total=66,
        expectations_total={"orders.amount_positive": 8, "orders.known": 0, "orders.new": 1},
    )  # fmt: skip
    with folder.held():
        write(folder, one)
        lines = moldau_here("pipeline", "status", path).output.splitlines()
    names, values = lines[0].split(), lines[1].replace("0 B", "0B").split()
    row = dict(zip(names, values, strict=False))
    assert (row["BATCH-ROWS"], row["RUN-ROWS"], row["DEAD-LETTERS"]) == ("11", "4444", "66")
    assert lines[2:] == [
        "orders: expectation orders.amount_positive failed for 8 rows of this run",
        "orders: expectation orders.new failed for 1 row of this run",
        "shop is running, process 7",
    ]


def test_a_status_written_by_an_older_version_is_shown(tmp_path: Path) -> None:
    path, folder = begun(tmp_path)
    told = QueryProgress("orders", ("copied",), "running", batch=1)._asdict()
    for new in ("began", "expectations_total"):
        del told[new]
    folder.write("status.json", {"name": "shop", "pid": 7, "error": None, "queries": [told]})
    assert "shop is stopped" in moldau_here("pipeline", "status", path).output
