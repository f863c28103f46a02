"""A progress bar on stderr, if that is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Bar(Protocol):
    def advance(self, amount: float, note: str = "") -> None: ...


class _NoBar:
    def advance(self, amount: float, note: str = "") -> None:
        """There is no terminal to draw on."""


class _RichBar:
    def __init__(self, progress: Any, task: Any) -> None:
        self._progress = progress
        self._task = task

    def advance(self, amount: float, note: str = "") -> None:
        self._progress.update(self._task, advance=amount, note=note)


@contextmanager
def progress_bar(
    action: str, total: float | None, *, is_bytes: bool = False, is_shown: bool = True
) -> Iterator[Bar]:
    """Without a total the bar only shows that work is in progress."""
    if not (is_shown and sys.stderr.isatty()):
        yield _NoBar()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True) if is_bytes else MofNCompleteColumn(),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _RichBar(progress, progress.add_task(action, total=total, note=""))
