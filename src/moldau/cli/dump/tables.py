"""Findings on a terminal: a heading for each file, a table for each kind of row."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from moldau.cli.dump.pages import Pages
from moldau.cli.dump.plain import remark_line, shown_path
from moldau.cli.dump.row_layouts import LAYOUTS, batch_line, counted, decoded_record, shown_size
from moldau.storage.inspection.items import (
    BatchFound,
    DirectoryEnd,
    DirectoryStart,
    FileEnd,
    FileStart,
    Item,
    Problem,
    RecordFound,
    Remark,
    Row,
)


class Tables:
    """Renders to a terminal: a heading for each file, a table for each kind of row."""

    def __init__(self, console: Console, *, records: bool = False) -> None:
        self._console = console
        # If records are shown, a batch is a line between their rows instead of a row of its own.
        self._records = records
        self._pages: Pages | None = None
        self._kind: type | None = None

    def show(self, item: Item) -> None:
        match item:
            case FileStart():
                facts = [*item.facts, ("size", shown_size(item.size_bytes))]
                self._heading(item.kind.value, shown_path(item.path), facts)
            case DirectoryStart():
                self._heading(item.role, shown_path(item.path), item.facts)
            case FileEnd():
                self._end_file(item)
            case DirectoryEnd():
                self._end_directory(item)
            case Problem():
                self._problem(item)
            case Remark():
                self._flush()
                self._console.print(f"  [yellow]{escape(remark_line(item))}[/]", soft_wrap=True)
            case BatchFound() if self._records:
                self._flush()
                self._console.print(batch_line(item))
            case RecordFound() if item.decoded_key or item.decoded_value:
                self._flush()
                self._console.print(decoded_record(item))
            case _:
                self._row(item)

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._pages is not None:
            self._pages.flush()

    def _end_table(self) -> None:
        self._flush()
        self._pages = None
        self._kind = None

    def _row(self, row: Row) -> None:
        if self._pages is None or self._kind is not type(row):
            self._end_table()
            self._pages = Pages(self._console, LAYOUTS[type(row)].columns)
            self._kind = type(row)
        self._pages.add(LAYOUTS[type(row)].cells(row))

    def _heading(self, kind: str, name: str, facts: Sequence[tuple[str, int | str]]) -> None:
        self._end_table()
        facts_text = "".join(f", {fact_name} {fact}" for fact_name, fact in facts)
        self._console.print()
        self._console.print(
            f"[bold cyan]{escape(name)}[/] [dim]{kind}{escape(facts_text)}[/]", soft_wrap=True
        )

    def _end_file(self, end: FileEnd) -> None:
        self._end_table()
        counts = ", ".join(counted(count, name) for name, count in end.counts)
        if end.next_offset is not None:
            counts += f", next offset {end.next_offset}"
        self._console.print(f"  [dim]{counts}[/]")

    def _end_directory(self, end: DirectoryEnd) -> None:
        self._end_table()
        if end.total is not None:
            self._console.print()
            self._row(end.total)
            self._end_table()

    def _problem(self, problem: Problem) -> None:
        self._flush()
        position = "" if problem.position is None else f": position {problem.position}"
        self._console.print(
            f"[bold red]problem:[/] {escape(shown_path(problem.path))}{position}: "
            f"[red]{escape(problem.what)}[/]; to do: {escape(problem.remedy)}",
            soft_wrap=True,
        )
