"""The output of `moldau demo`: a live picture on a terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from moldau.cli.demo.results import Results
from moldau.cli.pipeline.view import LiveTable, sparkline

_LEADERS = 5
_BAR_WIDTH = 16


@contextmanager
def shown(results: Results, heading: list[str]) -> Iterator[Callable[[], None]]:
    """Yields a function that shows the current results."""
    if not sys.stdout.isatty():
        sys.stdout.write("\n".join(heading) + "\n")
        yield _Lines(results)
        return
    from rich.live import Live

    from moldau.cli.shared.terminal import OutputConsole

    picture = Picture(results, heading)
    with Live(picture.drawn(), console=OutputConsole(), auto_refresh=False) as live:
        yield lambda: live.update(picture.drawn(), refresh=True)


class _Lines:
    """Prints a line whenever something has changed."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._printed = ""

    def __call__(self) -> None:
        line = line_of(self._results)
        if line != self._printed:
            self._printed = line
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def line_of(results: Results) -> str:
    states = {query.state for query in results.queries.values()} or {"starting"}
    parts = [
        f"published {results.published}",
        f"in the table {results.in_table}",
        f"dead letters {results.dead_letters}",
        f"in flight {results.in_flight}",
        f"pipeline {', '.join(sorted(states))}",
    ]
    if leaders := results.leaders(1):
        start, total = results.totals()[-1]
        parts.append(f"window {start[11:16]} {total:.2f}, most by {leaders[0][0]}")
    return "; ".join(parts)


class Picture:
    def __init__(self, results: Results, heading: list[str]) -> None:
        self._results = results
        self._heading = heading
        self._queries = LiveTable("orders")

    def drawn(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        side_by_side = Table.grid(padding=(0, 4))
        side_by_side.add_row(self._counts(), self._leaders())
        return Group(
            Text(self._heading[0], style="bold"),
            *(Text(line, style="dim") for line in self._heading[1:]),
            Text(),
            self._queries.drawn(list(self._results.queries.values())),
            side_by_side,
            Text(),
            self._trend("orders/s", list(self._results.rates)),
            self._trend("per minute", [total for _, total in self._results.totals()]),
        )

    def _counts(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        results = self._results
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right")
        rows = (
            (results.published, "orders published", "bold"),
            (results.in_table, "= in the table lake/orders", "green"),
            (results.dead_letters, "+ malformed, in orders.dlq", "yellow"),
            (results.in_flight, "+ in flight", "cyan"),
            (results.big, "above 100, also in orders.big", "dim"),
        )
        for number, label, style in rows:
            table.add_row(Text(str(number), style=style), Text(label, style=style))
        return table

    def _leaders(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        leaders = self._results.leaders(_LEADERS)
        table = Table.grid(padding=(0, 2))
        if not leaders:
            return table
        start, total = self._results.totals()[-1]
        table.add_row(Text(start[11:16], style="bold"), Text(f"{total:.2f}", style="bold"))
        largest = max(leaders[0][1], 1.0)
        for user, amount in leaders:
            bar = "█" * round(amount / largest * _BAR_WIDTH)
            table.add_row(user, f"{amount:.2f}", Text(bar, style="green"))
        return table

    def _trend(self, name: str, values: list[float]) -> Any:
        from rich.text import Text

        last = f" {values[-1]:.0f}" if values else ""
        return Text(f"{name:>10}  ") + Text(sparkline(values), style="cyan") + Text(last)
