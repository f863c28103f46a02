"""Output of commands: a table on a terminal, aligned columns in a pipe, JSON on request."""

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from moldau.cli.shared.escaping import json_text, printable

NONE_SHOWN = "-"
PROBLEMS_STATUS = 1
"""The exit status of commands that found something wrong in what they inspected."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable names, for scripts.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; required in scripts.")
]


def show_json(document: Any) -> None:
    """Indented on a terminal, one line elsewhere."""
    sys.stdout.write(json_text(document, indent=2 if sys.stdout.isatty() else None) + "\n")


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """Numbers are right-aligned. Columns that are empty in all rows are left out."""
    title = None if title is None else printable(title)
    listed = [[_shown(cell) for cell in row] for row in rows]
    kept = [
        column
        for column in range(len(columns))
        if not listed or any(row[column] != "" for row in listed)
    ]
    is_number = [_is_numeric([row[column] for row in listed]) for column in range(len(columns))]
    if sys.stdout.isatty():
        _show_rich(columns, listed, kept, is_number, title)
        return
    if title is not None:
        sys.stdout.write(title + "\n")
    lines = [[name.upper().replace(" ", "-") for name in columns], *listed]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    for line in lines:
        cells = [
            line[column].rjust(widths[column])
            if is_number[column]
            else line[column].ljust(widths[column])
            for column in kept
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _show_rich(
    columns: Sequence[str],
    rows: list[list[str]],
    kept: list[int],
    is_number: list[bool],
    title: str | None,
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from moldau.cli.shared.terminal import OutputConsole

    table = Table(
        title=None if title is None else Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        header_style="bold cyan",
        pad_edge=False,
    )
    for column in kept:
        table.add_column(
            columns[column], justify="right" if is_number[column] else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(row[column]) for column in kept))
    OutputConsole().print(table)


def _shown(cell: Any) -> str:
    match cell:
        case None:
            return NONE_SHOWN
        case bool():
            return "yes" if cell else "no"
        case list() | tuple():
            return printable(",".join(map(str, cell)))
        case _:
            return printable(str(cell))


def _is_numeric(cells: list[str]) -> bool:
    known = [cell for cell in cells if cell != NONE_SHOWN]
    return bool(known) and all(_is_number(cell) for cell in known)


def _is_number(cell: str) -> bool:
    return cell.removeprefix("-").replace(".", "", 1).isdigit()


def complain(command: str, problem: object) -> None:
    """One line on stderr, after what was printed before."""
    sys.stdout.flush()
    sys.stderr.write(f"moldau {command}: {printable(str(problem))}\n")


def finish(*, failed: bool) -> None:
    if failed:
        raise typer.Exit(1)


def bytes_text(size: int) -> str:
    """1536 -> 1.5 KiB"""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def confirm(question: str, *, yes: bool) -> None:
    """Asks on the terminal before a change that cannot be undone, also if stdout is redirected.
    Scripts have to pass --yes.
    """
    if not must_confirm(yes=yes):
        return
    # typer's own prompt puts a space on stdout, which may be a file.
    sys.stderr.write(f"{printable(question)} [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        sys.stderr.write("Nothing was changed.\n")
        raise typer.Abort


def must_confirm(*, yes: bool) -> bool:
    """Whether to ask for confirmation. Raises BadParameter if that needs a terminal and there is
    none.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise _UnconfirmedError("this cannot be undone; without a terminal, confirm with --yes.")
    return not yes


class _UnconfirmedError(typer.BadParameter):
    """Reported like a wrong value, but without the name of an option."""

    def format_message(self) -> str:
        return self.message
