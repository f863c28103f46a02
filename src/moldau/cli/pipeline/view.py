"""Shows a running pipeline: a live table on a terminal, lines elsewhere, JSON for scripts. Also the
output of `moldau pipeline status`.
"""

import json
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import typer

from moldau.cli.shared.output import bytes_text, show_table

if TYPE_CHECKING:
    from moldau.core.pipelines.query_progress import QueryProgress

COLUMNS = (
    "query", "targets", "state", "batch", "batch rows", "rows/s", "bytes/s", "batch ms", "lag",
    "run rows", "dead letters",
)  # fmt: skip
"""Rows, rates and time are those of the last batch; the last two count since the run started."""
_TEXTS = 3
"""The first columns are texts, the others numbers."""
_TARGETS = 1
"""The index of the column with targets, which is long."""
_BARS = "▁▂▃▄▅▆▇█"
_BARS_MAX = 30


class View(Protocol):
    def __call__(self, queries: list["QueryProgress"]) -> None: ...

    def phase(self, phase: str) -> None:
        """Shows the phase of a run that has no queries yet."""


def cells(query: Mapping[str, Any]) -> tuple[Any, ...]:
    """The cells of a query's row, in the order of COLUMNS."""
    return (
        query["query"],
        ", ".join(map(_short_path, query["targets"])),
        state_text(query),
        query["batch"],
        query["rows"],
        round(query["rows_per_s"]),
        bytes_text(round(query["bytes_per_s"])),
        query["batch_ms"],
        query["lag"],
        query["rows_total"],
        query["dead_letters_total"],
    )


def state_text(query: Mapping[str, Any]) -> str:
    """The state; for a starting query also what it waits for and for how long."""
    state = _state_without_time(query["state"])
    if query["state"] != "starting" or not query.get("began"):
        return state
    return f"{state}, {_seconds_since(query['began'])} s"


def _state_without_time(state: str) -> str:
    return "starting: first batch" if state == "starting" else state


def _seconds_since(moment: str) -> int:
    return max(0, round((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))


def _now() -> str:
    return datetime.now(UTC).isoformat()


def expectation_lines(queries: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each expectation that has failed since the run started."""
    return [
        f"{query['query']}: expectation {name} failed for {count} row{'s' * (count != 1)} "
        "of this run"
        for query in queries
        for name, count in query.get("expectations_total", {}).items()
        if count
    ]


def _short_path(target: str) -> str:
    """A table's path, relative if that is shorter."""
    return min(target, os.path.relpath(target), key=len) if target.startswith("/") else target


def sparkline(values: Sequence[float]) -> str:
    """A bar for each value; the largest is full."""
    largest = max(values, default=0.0)
    if largest <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(value / largest * (len(_BARS) - 1))] for value in values)


def show_status(status: Mapping[str, Any]) -> None:
    """Shows the status that a run has recorded, as a table."""
    if not status["queries"] and status["running"]:
        since = _seconds_since(status["since"])
        typer.echo(f"{status['name']} is {status['phase']}, {since} s, process {status['pid']}")
        return
    rows = [(*cells(query), query["time"]) for query in status["queries"]]
    show_table([*COLUMNS, "time"], rows)
    for line in expectation_lines(status["queries"]):
        typer.echo(line)
    name = status["name"]
    if status["running"]:
        typer.echo(f"{name} is running, process {status['pid']}")
    elif status["error"] is not None:
        typer.echo(f"{name} has failed: {status['error']}")
    else:
        typer.echo(f"{name} is stopped")


@contextmanager
def view(name: str, *, as_json: bool) -> Iterator[View]:
    if as_json:
        yield _JsonLines()
    elif sys.stdout.isatty():
        with _live(name) as show:
            yield show
    else:
        yield _Lines(name)


class _JsonLines:
    """A line for each change of a query. Phases are in `moldau pipeline status --json`."""

    def __init__(self) -> None:
        self._printed: dict[str, QueryProgress] = {}

    def __call__(self, queries: list["QueryProgress"]) -> None:
        for progress in queries:
            if self._printed.get(progress.query) != progress:
                self._printed[progress.query] = progress
                sys.stdout.write(json.dumps(progress._asdict()) + "\n")
        sys.stdout.flush()

    def phase(self, phase: str) -> None:
        pass


class _Lines:
    """A line for each phase of the start, each batch with rows, and each change of state."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._printed: dict[str, tuple[str, int]] = {}

    def __call__(self, queries: list["QueryProgress"]) -> None:
        for progress in queries:
            state, rows = self._printed.get(progress.query, ("", 0))
            has_rows = progress.rows_total > rows
            if progress.state == state and not has_rows:
                continue
            self._printed[progress.query] = (progress.state, progress.rows_total)
            text = _state_without_time(progress.state)
            if has_rows:
                text = f"{progress.state}{_batch_text(progress)}"
            sys.stdout.write(f"{progress.query} {text}\n")
        sys.stdout.flush()

    def phase(self, phase: str) -> None:
        sys.stdout.write(f"{self._name} is {phase}\n")
        sys.stdout.flush()


def _batch_text(progress: "QueryProgress") -> str:
    rows, dead_letters = progress.rows, progress.dead_letters
    parts = [
        f"batch {progress.batch}",
        f"{rows} row{'s' * (rows != 1)}",
        f"{progress.rows_per_s:.0f} rows/s",
        f"{bytes_text(round(progress.bytes_per_s))}/s",
        f"{progress.batch_ms} ms",
    ]
    if progress.lag is not None:
        parts.append(f"lag {progress.lag}")
    if dead_letters:
        parts.append(f"{dead_letters} dead letter{'s' * (dead_letters != 1)}")
    failed = [f"{name} {count}" for name, count in progress.expectations_total.items() if count]
    if failed:
        parts.append(f"failed expectations in this run: {', '.join(failed)}")
    return ": " + ", ".join(parts)


@contextmanager
def _live(name: str) -> Iterator[View]:
    from rich.live import Live

    from moldau.cli.shared.terminal import OutputConsole

    picture = LivePicture(name)
    with Live(picture, console=OutputConsole(), refresh_per_second=4):
        yield picture


class LivePicture:
    """Redrawn several times a second, to show how long a phase takes."""

    def __init__(self, name: str) -> None:
        self._table = LiveTable(name, "Ctrl-C stops it between two batches")
        self._queries: list[QueryProgress] = []
        self._phase, self._since = "starting", _now()

    def __call__(self, queries: list["QueryProgress"]) -> None:
        self._queries = queries

    def phase(self, phase: str) -> None:
        self._phase, self._since = phase, _now()

    def __rich__(self) -> Any:
        return self._table.drawn(self._queries, f"{self._phase}, {_seconds_since(self._since)} s")


class LiveTable:
    """A row for each query; below it the trend of its rows per second, and its targets."""

    def __init__(self, name: str, hint: str = "") -> None:
        self._title = (f"pipeline {name}", f"   {hint}")
        self._rates: dict[str, deque[float]] = {}
        self._batches: dict[str, int] = {}

    def drawn(self, queries: list["QueryProgress"], phase: str = "Spark is starting") -> Any:
        """The table; `phase` is shown as long as there are no queries."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        title = Text.assemble((self._title[0], "bold"), (self._title[1], "dim"))
        if not queries:
            return Group(title, Text(phase, style="dim"), Text())
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        trends = Table.grid(padding=(0, 2, 0, 0))
        for index, column in enumerate(COLUMNS):
            if index != _TARGETS:
                justify: Any = "left" if index < _TEXTS else "right"
                # Two words on two lines, so that all columns fit into 80 characters.
                head = column.replace(" ", "\n")
                table.add_column(head, justify=justify, header_style="bold cyan", no_wrap=True)
        for progress in queries:
            shown = [_shown(cell) for cell in cells(progress._asdict())]
            targets = shown.pop(_TARGETS)
            targets.no_wrap, targets.overflow = True, "ellipsis"
            table.add_row(*shown)
            bars = sparkline(self._rates_of(progress)).rjust(_BARS_MAX)
            line = Text(bars, style="cyan", no_wrap=True)
            trends.add_row(Text(progress.query, no_wrap=True), line, targets)
        failed = expectation_lines([progress._asdict() for progress in queries])
        return Group(title, table, trends, *map(Text, failed), Text())

    def _rates_of(self, progress: "QueryProgress") -> Sequence[float]:
        rates = self._rates.setdefault(progress.query, deque(maxlen=_BARS_MAX))
        if progress.batches_total > self._batches.get(progress.query, 0):
            self._batches[progress.query] = progress.batches_total
            rates.append(progress.rows_per_s)
        return rates


def _shown(cell: Any) -> Any:
    from rich.text import Text

    if cell is None:
        return Text("-", style="dim")
    styles = {"running": "green", "starting": "yellow", "failed": "bold red"}
    return Text(str(cell), style=styles.get(str(cell).partition(":")[0], ""))
