"""How a running pipeline is shown: a table that changes on a terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.pipelines.progress import QueryProgress

COLUMNS = ("query", "targets", "state", "batch", "rows", "rows/s", "batch ms", "lag")
Show = Callable[[list["QueryProgress"]], None]


def cells(one: "QueryProgress") -> tuple[Any, ...]:
    return (
        one.query,
        ", ".join(one.targets),
        one.state,
        one.batch,
        one.rows,
        round(one.rows_per_s),
        one.batch_ms,
        one.lag,
    )


@contextmanager
def view(name: str) -> Iterator[Show]:
    if sys.stdout.isatty():
        with _live(name) as show:
            yield show
    else:
        yield _Lines()


class _Lines:
    """One for each batch with rows, and for each change of state."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Any, ...]] = {}

    def __call__(self, found: list["QueryProgress"]) -> None:
        for one in found:
            news = (one.state, one.batch if one.rows else None)
            if self._told.get(one.query) == news or (one.rows == 0 and one.state == "running"):
                continue
            self._told[one.query] = news
            lag = "" if one.lag is None else f", lag {one.lag}"
            batch = (
                ""
                if one.batch is None
                else f": batch {one.batch}, {one.rows} rows, {one.rows_per_s:.0f} rows/s, "
                f"{one.batch_ms} ms{lag}"
            )
            sys.stdout.write(f"{one.query} {one.state}{batch}\n")
        sys.stdout.flush()


@contextmanager
def _live(name: str) -> Iterator[Show]:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def drawn(found: list["QueryProgress"]) -> Table:
        table = Table(title=f"pipeline {name} (Ctrl-C stops it)", title_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column in COLUMNS[:3] else "right")
        for one in found:
            table.add_row(*(Text("-" if cell is None else str(cell)) for cell in cells(one)))
        return table

    with Live(drawn([]), refresh_per_second=4) as live:
        yield lambda found: live.update(drawn(found))
