"""A table of any length on a terminal, printed in pages, so that it needs bounded memory; the
columns keep their widths from page to page.
"""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from moldau.frozen import frozen

_PAGE_ROWS = 100
# The gap between columns, and the least width of a wide one on a narrow terminal.
_GAP = 2
WIDE_MIN = 12

Cell = str | Text


@frozen
class Column:
    title: str
    is_number: bool = False
    # Shrinks when the terminal is narrow, and is then cut with an ellipsis.
    is_wide: bool = False
    width_min: int = WIDE_MIN
    # Left out when the terminal is narrow; the highest first.
    spare_rank: int = 0


class Pages:
    """One table, printed a page at a time."""

    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        self._console = console
        self._columns = columns
        self._rows: list[list[Cell]] = []
        self._widths = [len(column.title) for column in columns]
        self._shown: list[int] = []

    def add(self, cells: list[Cell]) -> None:
        self._rows.append(cells)
        if len(self._rows) >= _PAGE_ROWS:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        for index in range(len(self._columns)):
            longest = max(_width(row[index]) for row in self._rows)
            self._widths[index] = max(self._widths[index], longest)
        is_first = not self._shown
        if is_first:
            self._shown = self._choose_columns()
        table = Table(box=None, show_header=is_first, padding=(0, 1), header_style="bold underline")
        widths = self._fitted_widths()
        for index in self._shown:
            column = self._columns[index]
            table.add_column(
                column.title,
                justify="right" if column.is_number else "left",
                no_wrap=True,
                overflow="ellipsis",
                width=widths[index],
            )
        for row in self._rows:
            table.add_row(*(row[index] for index in self._shown))
        self._console.print(table)
        self._rows.clear()

    def _total_width(self, shown: Sequence[int]) -> int:
        wide = sum(self._least_width(index) for index in shown if self._columns[index].is_wide)
        fixed = sum(self._widths[index] for index in shown if not self._columns[index].is_wide)
        return wide + fixed + _GAP * len(shown)

    def _least_width(self, index: int) -> int:
        return min(self._widths[index], self._columns[index].width_min)

    def _choose_columns(self) -> list[int]:
        """The columns that fit; the other formats have all of them."""
        shown = [
            index
            for index, column in enumerate(self._columns)
            if column.title or self._widths[index] > 0
        ]
        spare = sorted(
            (index for index in shown if self._columns[index].spare_rank),
            key=lambda index: -self._columns[index].spare_rank,
        )
        for index in spare:
            if self._total_width(shown) > self._console.width:
                shown.remove(index)
        return shown

    def _fitted_widths(self) -> list[int]:
        widths = list(self._widths)
        wide = [index for index in self._shown if self._columns[index].is_wide]
        fixed = sum(widths[index] for index in self._shown if index not in wide)
        left = self._console.width - fixed - _GAP * len(self._shown)
        # The narrow ones first, so that they leave their share to the others.
        for count, index in enumerate(sorted(wide, key=lambda index: widths[index])):
            share = max(self._least_width(index), left // (len(wide) - count))
            widths[index] = min(widths[index], share)
            left -= widths[index]
        return widths


def _width(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)
