"""What commands print: a table on a terminal, aligned columns in a pipe, JSON on demand."""

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from moldau.cli.shared.escaping import json_text, printable

NONE_SHOWN = "-"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable names, for scripts.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask; needed where nobody can be asked.")
]


def show_json(document: Any) -> None:
    """Indented on a terminal, one line elsewhere."""
    sys.stdout.write(json_text(document, indent=2 if sys.stdout.isatty() else None) + "\n")


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """Numbers are aligned at the right. Columns that are empty in all rows are left out."""
    title = None if title is None else printable(title)
    listed = [[_shown(cell) for cell in row] for row in rows]
    kept = [
        place
        for place in range(len(columns))
        if not listed or any(row[place] != "" for row in listed)
    ]
    is_number = [_is_numeric([row[place] for row in listed]) for place in range(len(columns))]
    if sys.stdout.isatty():
        _show_rich(columns, listed, kept, is_number, title)
        return
    if title is not None:
        sys.stdout.write(title + "\n")
    lines = [[column.upper().replace(" ", "-") for column in columns], *listed]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        cells = [
            line[place].rjust(widths[place])
            if is_number[place]
            else line[place].ljust(widths[place])
            for place in kept
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
    for place in kept:
        table.add_column(
            columns[place], justify="right" if is_number[place] else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(row[place]) for place in kept))
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
    told = [cell for cell in cells if cell != NONE_SHOWN]
    return bool(told) and all(cell.removeprefix("-").replace(".", "", 1).isdigit() for cell in told)


def complain(command: str, problem: object) -> None:
    """One line on stderr, behind what was printed before."""
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
    """Before what cannot be undone. Asks a person on the terminal, also if stdout goes elsewhere; a
    script has to say --yes.
    """
    if not must_ask(yes=yes):
        return
    # typer's own prompt puts a space on stdout, which may be a file.
    sys.stderr.write(f"{printable(question)} [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        sys.stderr.write("Nothing was changed.\n")
        raise typer.Abort


def must_ask(*, yes: bool) -> bool:
    """Refuses if there is nobody to ask."""
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise _UnconfirmedError("this cannot be undone, and nobody is here to ask; add --yes.")
    return not yes


class _UnconfirmedError(typer.BadParameter):
    """No value is wrong, but it is reported like one that is."""

    def format_message(self) -> str:
        return self.message
