"""What commands print: a table on a terminal, aligned columns in a pipe, JSON on demand."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

NONE_SHOWN = "-"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable names, for scripts.")]


def show_json(document: Any) -> None:
    """Indented on a terminal, one line elsewhere."""
    if sys.stdout.isatty():
        text = json.dumps(document, indent=2, ensure_ascii=False)
    else:
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    sys.stdout.write(text + "\n")


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """Numbers are aligned at the right. Columns that are empty in all rows are left out."""
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

    from moldau.cli.terminal import OutputConsole

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
            return ",".join(map(str, cell))
        case _:
            text = str(cell)
            return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _is_numeric(cells: list[str]) -> bool:
    told = [cell for cell in cells if cell != NONE_SHOWN]
    return bool(told) and all(cell.removeprefix("-").replace(".", "", 1).isdigit() for cell in told)


def complain(command: str, problem: object) -> None:
    """One line on stderr, behind what was printed before."""
    sys.stdout.flush()
    sys.stderr.write(f"moldau {command}: {problem}\n")


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
    """Asks a person; a script has made up its mind."""
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        typer.confirm(question, abort=True)
