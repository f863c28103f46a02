"""How a running pipeline is shown: a table that changes on a terminal, lines elsewhere, JSON for
scripts; and how it is told about afterwards.
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
"""Rows, rates and time are those of the last batch; the last two count since the run began."""
_TEXTS = 3
"""So many columns are no numbers."""
_TARGETS = 1
"""This one is long."""
_BARS = "▁▂▃▄▅▆▇█"
_BARS_MAX = 30


class View(Protocol):
    def __call__(self, found: list["QueryProgress"]) -> None: ...

    def phase(self, told: str) -> None:
        """What a run does before its queries are there."""


def cells(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """Under COLUMNS."""
    return (
        one["query"],
        ", ".join(map(_near, one["targets"])),
        state_text(one),
        one["batch"],
        one["rows"],
        round(one["rows_per_s"]),
        bytes_text(round(one["bytes_per_s"])),
        one["batch_ms"],
        one["lag"],
        one["rows_total"],
        one["dead_letters_total"],
    )


def state_text(one: Mapping[str, Any]) -> str:
    """A query that starts says what it waits for, and how long it has."""
    state = _state_without_time(one["state"])
    if one["state"] != "starting" or not one.get("began"):
        return state
    return f"{state}, {_seconds_since(one['began'])} s"


def _state_without_time(state: str) -> str:
    return "starting: first batch" if state == "starting" else state


def _seconds_since(moment: str) -> int:
    return max(0, round((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))


def _now() -> str:
    return datetime.now(UTC).isoformat()


def expectation_lines(queries: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was not as expected since the run began."""
    return [
        f"{one['query']}: expectation {name} failed for {count} row{'s' * (count != 1)} of this run"
        for one in queries
        for name, count in one.get("expectations_total", {}).items()
        if count
    ]


def _near(target: str) -> str:
    """A table's path as it is from here, if that is shorter."""
    return min(target, os.path.relpath(target), key=len) if target.startswith("/") else target


def sparkline(values: Sequence[float]) -> str:
    """The largest one is full."""
    largest = max(values, default=0.0)
    if largest <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(value / largest * (len(_BARS) - 1))] for value in values)


def show_status(found: Mapping[str, Any]) -> None:
    """What a run has written down, as a table."""
    if not found["queries"] and found["running"]:
        since = _seconds_since(found["since"])
        typer.echo(f"{found['name']} is {found['phase']}, {since} s, process {found['pid']}")
        return
    show_table([*COLUMNS, "time"], [(*cells(one), one["time"]) for one in found["queries"]])
    for line in expectation_lines(found["queries"]):
        typer.echo(line)
    name = found["name"]
    if found["running"]:
        typer.echo(f"{name} runs, process {found['pid']}")
    elif found["error"] is not None:
        typer.echo(f"{name} has failed: {found['error']}")
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
    """One for each change of a query; before that, `moldau pipeline status --json` tells more."""

    def __init__(self) -> None:
        self._told: dict[str, QueryProgress] = {}

    def __call__(self, found: list["QueryProgress"]) -> None:
        for one in found:
            if self._told.get(one.query) != one:
                self._told[one.query] = one
                sys.stdout.write(json.dumps(one._asdict()) + "\n")
        sys.stdout.flush()

    def phase(self, told: str) -> None:
        pass


class _Lines:
    """One for each phase of the start, for each batch with rows, and for each change of state."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: dict[str, tuple[str, int]] = {}

    def __call__(self, found: list["QueryProgress"]) -> None:
        for one in found:
            state, rows = self._told.get(one.query, ("", 0))
            has_rows = one.rows_total > rows
            if one.state == state and not has_rows:
                continue
            self._told[one.query] = (one.state, one.rows_total)
            told = f"{one.state}{_batch_text(one)}" if has_rows else _state_without_time(one.state)
            sys.stdout.write(f"{one.query} {told}\n")
        sys.stdout.flush()

    def phase(self, told: str) -> None:
        sys.stdout.write(f"{self._name} is {told}\n")
        sys.stdout.flush()


def _batch_text(one: "QueryProgress") -> str:
    parts = [
        f"batch {one.batch}",
        f"{one.rows} row{'s' * (one.rows != 1)}",
        f"{one.rows_per_s:.0f} rows/s",
        f"{bytes_text(round(one.bytes_per_s))}/s",
        f"{one.batch_ms} ms",
    ]
    if one.lag is not None:
        parts.append(f"lag {one.lag}")
    if one.dead_letters:
        parts.append(f"{one.dead_letters} dead letter{'s' * (one.dead_letters != 1)}")
    failed = [f"{name} {count}" for name, count in one.expectations_total.items() if count]
    if failed:
        parts.append(f"not as expected in this run: {', '.join(failed)}")
    return ": " + ", ".join(parts)


@contextmanager
def _live(name: str) -> Iterator[View]:
    from rich.live import Live

    from moldau.cli.shared.terminal import OutputConsole

    picture = LivePicture(name)
    with Live(picture, console=OutputConsole(), refresh_per_second=4):
        yield picture


class LivePicture:
    """Drawn anew several times a second, so that the time of a phase is seen to pass."""

    def __init__(self, name: str) -> None:
        self._table = LiveTable(name, "Ctrl-C stops it between two batches")
        self._found: list[QueryProgress] = []
        self._phase, self._since = "starting", _now()

    def __call__(self, found: list["QueryProgress"]) -> None:
        self._found = found

    def phase(self, told: str) -> None:
        self._phase, self._since = told, _now()

    def __rich__(self) -> Any:
        return self._table.drawn(self._found, f"{self._phase}, {_seconds_since(self._since)} s")


class LiveTable:
    """A row for each query; beneath, how its rows per second were, and what it writes."""

    def __init__(self, name: str, hint: str = "") -> None:
        self._title = (f"pipeline {name}", f"   {hint}")
        self._rates: dict[str, deque[float]] = {}
        self._batches: dict[str, int] = {}

    def drawn(self, found: list["QueryProgress"], phase: str = "Spark is starting") -> Any:
        """`phase`: what is said as long as there are no queries."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        title = Text.assemble((self._title[0], "bold"), (self._title[1], "dim"))
        if not found:
            return Group(title, Text(phase, style="dim"), Text())
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        trends = Table.grid(padding=(0, 2, 0, 0))
        for place, column in enumerate(COLUMNS):
            if place != _TARGETS:
                justify: Any = "left" if place < _TEXTS else "right"
                # In two lines where it has two words: all columns fit into a terminal of 80.
                head = column.replace(" ", "\n")
                table.add_column(head, justify=justify, header_style="bold cyan", no_wrap=True)
        for one in found:
            shown = [_shown(cell) for cell in cells(one._asdict())]
            targets = shown.pop(_TARGETS)
            targets.no_wrap, targets.overflow = True, "ellipsis"
            table.add_row(*shown)
            line = Text(sparkline(self._rates_of(one)).rjust(_BARS_MAX), style="cyan", no_wrap=True)
            trends.add_row(Text(one.query, no_wrap=True), line, targets)
        failed = [Text(line) for line in expectation_lines([one._asdict() for one in found])]
        return Group(title, table, trends, *failed, Text())

    def _rates_of(self, one: "QueryProgress") -> Sequence[float]:
        rates = self._rates.setdefault(one.query, deque(maxlen=_BARS_MAX))
        if one.batches_total > self._batches.get(one.query, 0):
            self._batches[one.query] = one.batches_total
            rates.append(one.rows_per_s)
        return rates


def _shown(cell: Any) -> Any:
    from rich.text import Text

    if cell is None:
        return Text("-", style="dim")
    styles = {"running": "green", "starting": "yellow", "failed": "bold red"}
    return Text(str(cell), style=styles.get(str(cell).partition(":")[0], ""))
