"""A query's progress from Spark's reports, and its output without a terminal."""

import re
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from cli.command import moldau_here

from moldau.cli.demo.results import DEAD_LETTERS, PER_USER, Results
from moldau.cli.demo.view import Picture, line_of
from moldau.cli.pipeline.view import LivePicture, sparkline, view
from moldau.core.pipelines.query_progress import QueryProgress, counted
from moldau.pipelines.run.metrics import served_metrics
from moldau.protocol.errors import MoldauError

BEGUN = QueryProgress("orders", ("orders.big",), "running")


def report(batch: int, rows: int, end: int, latest: int) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"addBatch": 400, "triggerExecution": 500},
        "timestamp": "2026-11-16T10:00:00.000Z",
        "sources": [
            {
                "endOffset": {"orders": {"0": end}},
                "latestOffset": {"orders": {"0": latest}},
            }
        ],
        "observedMetrics": {"moldau.read.orders": {"bytes": rows * 10}, "users.own": {"bytes": 7}},
    }


def test_batches_are_summed_and_the_last_one_is_shown() -> None:
    first = counted(BEGUN, report(0, 100, 100, 150), bad=2)
    assert (first.rows_per_s, first.bytes_per_s, first.bytes) == (200.0, 2000.0, 1000)
    assert first.lag == 50
    second = counted(first, report(1, 50, 150, 150), bad=0)
    assert (second.batch, second.rows, second.bytes, second.dead_letters) == (1, 50, 500, 0)
    assert (second.batches_total, second.rows_total, second.bytes_total) == (2, 150, 1500)
    assert second.dead_letters_total == 2


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([0, 0], "▁▁"), ([0, 50, 100], "▁▅█"), ([7], "█")],
)
def test_rates_are_drawn_against_the_largest(values: list[float], drawn: str) -> None:
    assert sparkline(values) == drawn


def test_lines_show_states_and_batches_with_rows(capsys: pytest.CaptureFixture[str]) -> None:
    batch = counted(BEGUN, report(0, 100, 100, 150), bad=2)
    empty = counted(batch, report(1, 0, 150, 150), bad=0)
    with view("shop", as_json=False) as show:
        show.phase("starting Spark at local[*]")
        show.phase("analysing plans")
        starting = BEGUN._replace(state="starting", began="2026-11-16T10:00:00+00:00")
        for one in (
            starting,
            starting,
            BEGUN,
            batch,
            batch,
            empty,
            empty._replace(state="stopped"),
        ):
            show([one])
    assert capsys.readouterr().out.splitlines() == [
        "shop is starting Spark at local[*]",
        "shop is analysing plans",
        "orders starting: first batch",
        "orders running",
        "orders running: batch 0, 100 rows, 200 rows/s, 2.0 KiB/s, 500 ms, lag 50, 2 dead letters",
        "orders stopped",
    ]


def test_a_batch_of_one_row_is_shown_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    with view("shop", as_json=False) as show:
        show([counted(BEGUN, report(0, 1, 100, 150), bad=1)])
    assert ": batch 0, 1 row, 2 rows/s, 20 B/s, 500 ms, lag 50, 1 dead letter\n" in (
        capsys.readouterr().out
    )


def test_the_live_view_shows_the_phase_until_there_are_queries() -> None:
    from rich.console import Console

    picture = LivePicture("shop")
    drawing = Console(width=120, force_terminal=False)

    def drawn() -> str:
        with drawing.capture() as found:
            drawing.print(picture)
        return found.get()

    picture.phase("starting Spark at local[*]")
    assert re.search(r"^starting Spark at local\[\*\], \d+ s *$", drawn(), re.MULTILINE)
    picture.phase("analysing plans")
    assert re.search(r"^analysing plans, \d+ s *$", drawn(), re.MULTILINE)
    picture([BEGUN._replace(state="starting", began="2026-11-16T10:00:00+00:00")])
    assert re.search(r"starting: first batch, \d{3,} s", drawn())
    assert "analysing" not in drawn()


def test_the_results_of_the_orders_are_counted_and_drawn() -> None:
    from rich.console import Console

    results = Results(published=60, in_table=50)
    results.count_record(DEAD_LETTERS, b"{broken")
    for user, total in (("grete", 7.5), ("josef", 3.0), ("josef", 9.0)):
        row = f'{{"start":"2026-11-16T10:07:00.000Z","user":"{user}","total":{total}}}'
        results.count_record(PER_USER, row.encode())
    results.queries["orders"] = counted(BEGUN, report(0, 100, 100, 150), bad=2)
    assert results.in_flight == 9
    assert line_of(results) == (
        "published 60; in the table 50; dead letters 1; in flight 9; pipeline running; "
        "window 10:07 16.50, most by josef"
    )
    drawing = Console(width=80, force_terminal=False)
    with drawing.capture() as picture:
        drawing.print(Picture(results, ["a heading"]).drawn())
    text = picture.get()
    assert max(len(line) for line in text.splitlines()) <= 80
    for told in ("a heading", "60  orders published", "josef  9.00", "orders.big", "2.0 KiB"):
        assert told in text


def test_metrics_are_served_during_a_run() -> None:
    told: list[str] = []
    with served_metrics("shop", "127.0.0.1", 0, told.append) as metrics:
        metrics([counted(BEGUN, report(0, 100, 100, 150), bad=2)])
        with urlopen(told[0]) as answer:
            text = answer.read().decode()
        taken = int(told[0].split(":")[2].removesuffix("/metrics"))
        with (
            pytest.raises(MoldauError, match=f"cannot be served at 127.0.0.1:{taken}"),
            served_metrics("shop", "127.0.0.1", taken, told.append),
        ):
            pass
    for name, value in {
        "rows_total": 100, "bytes_total": 1000, "dead_letters_total": 2, "errors_total": 0,
        "lag": 50, "running": 1, "batch_duration_seconds": 0.5, "rows_per_second": 200,
    }.items():  # fmt: skip
        line = f'moldau_pipeline_{name}{{pipeline="shop",query="orders"}} {float(value)}'
        assert line in text
    with pytest.raises(URLError):
        urlopen(told[0])


def test_invalid_options_of_the_demo_are_refused() -> None:
    done = moldau_here("demo", "--rate", "0")
    assert done.status == 2
    assert "--rate" in done.errors
