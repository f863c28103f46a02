"""`moldau dump`: shows files of a log directory and their problems. It only reads."""

import sys
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.shared.output import PROBLEMS_STATUS
from moldau.cli.shared.quiet_pipe import quiet_pipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from moldau.cli.dump.plain import Renderer
    from moldau.storage.inspection import InspectionOptions
    from moldau.storage.inspection.items import Item

_UNREADABLE_STATUS = 2
# Below this a bar would only flicker.
_PROGRESS_BYTES_MIN = 64 * 1024 * 1024

_HELP = """
Show log segments, indexes, snapshots and checkpoints of Kafka or Moldau, and report problems.

Give files, partition directories (all their files) or log directories (one row per partition).
On a terminal the output is a table; in a pipe it has the lines of Apache's kafka-dump-log.

The exit status is 0 without problems, 1 with problems, 2 if a file could not be read at all.

[bold]Examples[/]

  moldau dump /var/lib/kafka/orders-0/00000000000000000000.log

  moldau dump --records --limit 20 orders-0/*.log

  moldau dump --check /var/lib/kafka

  moldau dump --records __consumer_offsets-12 | grep my-group

  moldau dump --json orders-0 | jq 'select(.type == "batch") | .size'
"""


class DecodeChoice(Enum):
    AUTO = "auto"
    NONE = "none"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"
    METADATA = "metadata"
    SHARE = "share"


class FormatChoice(Enum):
    AUTO = "auto"
    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"


def dump(  # noqa: PLR0913 - each parameter is an option of the command
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files or directories.", show_default=False),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show the records inside the batches too.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", "-c", help="Check everything, records included, and print only problems."
        ),
    ] = False,
    decode: Annotated[
        DecodeChoice,
        typer.Option(
            help="Format of records in internal topics; auto: by the name of the directory."
        ),
    ] = DecodeChoice.AUTO,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=1, help="Stop after N rows of each file.", show_default=False
        ),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Stop after this many bytes of batches of each log.", show_default=False
        ),
    ] = None,
    output: Annotated[
        FormatChoice,
        typer.Option("--format", help="Output format; auto: table on a terminal, else plain."),
    ] = FormatChoice.AUTO,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Print stored keys, salts and passwords.")
    ] = False,
) -> None:
    from moldau.storage.inspection import Decoding, InspectionOptions

    options = InspectionOptions(
        records=not check and (records or decode not in {DecodeChoice.AUTO, DecodeChoice.NONE}),
        check_records=check,
        decoding=Decoding(decode.value),
        rows_max=None if check else limit,
        bytes_max=None if check else max_bytes,
        secrets=show_secrets,
    )
    chosen = FormatChoice.JSON if json_lines else output
    with quiet_pipe():
        status = _Dump(chosen, options, problems_only=check).run(paths)
    if status:
        raise typer.Exit(status)


dump.__doc__ = _HELP


class _Dump:
    """One run of the command over its paths."""

    def __init__(
        self, output: FormatChoice, options: "InspectionOptions", *, problems_only: bool
    ) -> None:
        self._options = options
        self._problems_only = problems_only
        self._renderer, self._is_table = _choose(output, records=options.records)
        self._problems = 0
        self._unread = 0
        self._status = 0

    def run(self, paths: list[Path]) -> int:
        is_flowing = self._is_table and not self._problems_only
        with _progress(paths, is_shown=not is_flowing) as on_progress:
            for path in paths:
                self._dump(path, on_progress)
        self._renderer.close()
        self._print_summary()
        if self._problems:
            return self._status or PROBLEMS_STATUS
        return self._status

    def _dump(self, path: Path, on_progress: "Callable[[int], None] | None") -> None:
        from dataclasses import replace

        from moldau.storage.inspection import inspect_path

        try:
            self._show(inspect_path(path, replace(self._options, on_progress=on_progress)))
        except BrokenPipeError:
            raise
        except OSError as error:
            self._renderer.close()
            self._status = _UNREADABLE_STATUS
            reason = error.strerror or str(error)
            typer.echo(f"moldau dump: {error.filename or path}: {reason}", err=True)

    def _show(self, items: "Iterable[Item]") -> None:
        from moldau.storage.inspection.items import Problem, Remark

        show = self._renderer.show
        for item in items:
            if isinstance(item, Problem):
                self._problems += 1
            elif isinstance(item, Remark) and item.is_unread:
                # Shown even with --check: otherwise it would look like a file without problems.
                self._unread += 1
            elif self._problems_only:
                continue
            show(item)

    def _print_summary(self) -> None:
        if self._problems:
            plural = "" if self._problems == 1 else "s"
            sys.stdout.flush()
            typer.echo(f"{self._problems} problem{plural} found", err=True)
        elif self._problems_only and not self._status:
            read = " in what was read" if self._unread else ""
            typer.echo(f"no problems found{read}", err=True)


def _choose(output: FormatChoice, *, records: bool) -> "tuple[Renderer, bool]":
    from moldau.cli.dump.plain import JsonLines, PlainLines

    if output is FormatChoice.JSON:
        return JsonLines(sys.stdout), False
    if output is FormatChoice.TABLE or (output is FormatChoice.AUTO and sys.stdout.isatty()):
        from moldau.cli.dump.tables import Tables
        from moldau.cli.shared.terminal import OutputConsole

        return Tables(OutputConsole(), records=records), True
    return PlainLines(sys.stdout), False


@contextmanager
def _progress(paths: list[Path], *, is_shown: bool) -> "Iterator[Callable[[int], None] | None]":
    """A bar on stderr while a large dump is redirected or prints little."""
    total_bytes = _size_bytes(paths) if is_shown and sys.stderr.isatty() else 0
    if total_bytes < _PROGRESS_BYTES_MIN:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total_bytes)
        yield lambda read_bytes: bar.advance(task, read_bytes)


def _size_bytes(paths: list[Path]) -> int:
    """Size of the logs alone: indexes are small, and sparse files take less than their size."""
    total = 0
    for path in paths:
        logs = path.rglob("*.log") if path.is_dir() else [path]
        total += sum(log.stat().st_size for log in logs if log.is_file())
    return total
