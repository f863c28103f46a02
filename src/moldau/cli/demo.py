"""`moldau demo`: a log is written, read back, damaged, recovered and dumped before the user's eyes.
It uses nothing but what a broker will use.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.quiet_pipe import quiet_pipe
from moldau.cli.terminal import OutputConsole

if TYPE_CHECKING:
    from moldau.cli.demo_log import DemoLog

_TORN_BYTES = 100


def demo(
    directory: Annotated[
        Path | None,
        typer.Option(help="Write here instead of into a temporary directory.", show_default=False),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the files there at the end.")] = False,
) -> None:
    """Write a small log, read it back, break it, and dump it before your eyes."""
    with quiet_pipe():
        console = OutputConsole()
        if directory is not None and directory.exists() and any(directory.iterdir()):
            raise typer.BadParameter(f"{directory} is not empty", param_hint="--directory")
        with _place(directory, keep=keep) as place:
            _Story(console, place).tell()
            console.print()
            if keep or directory is not None:
                console.print(f"The files are in [bold]{place}[/]. Look around:")
                console.print(f"  moldau dump --records {place / 'river-0'}", soft_wrap=True)
            else:
                console.print("The files were temporary and are gone; [bold]--keep[/] leaves them.")


@contextlib.contextmanager
def _place(directory: Path | None, *, keep: bool) -> Iterator[Path]:
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
    elif keep:
        yield Path(tempfile.mkdtemp(prefix="moldau-demo-"))
    else:
        with tempfile.TemporaryDirectory(prefix="moldau-demo-") as temporary:
            yield Path(temporary)


class _Story:
    def __init__(self, console: OutputConsole, place: Path) -> None:
        self._console = console
        self._place = place
        self._chapter = 0

    def tell(self) -> None:
        from moldau.cli.demo_log import DemoLog

        now_ms = time.time_ns() // 1_000_000
        self._say("Format a log directory and write one topic, as a broker would.")
        log = DemoLog(self._place, now_ms)
        self._write(log)
        self._read(log)
        self._crash(log)
        self._say("Stop cleanly. This is what lies on the disk, in Kafka's own formats:")
        log.stop()
        self._dump(self._place)
        self._dump(*sorted((self._place / "river-0").glob("*.log")))
        self._dump(*sorted((self._place / "river-0").glob("*.txnindex")))

    def _say(self, text: str) -> None:
        self._chapter += 1
        self._console.print()
        self._console.print(f"[bold green]{self._chapter}.[/] [bold]{text}[/]")

    def _write(self, log: "DemoLog") -> None:
        from moldau.cli.demo_log import SEGMENT_BYTES

        for codec, records, size_bytes, offset in log.write_every_codec():
            self._console.print(
                f"   {codec:<7} {records} records at offset {offset:>3}: {size_bytes:>5} bytes"
            )
        self._say("Two transactions of an idempotent producer: one commits, one aborts.")
        for name, first_offset, marker_offset in log.write_transactions():
            self._console.print(
                f"   {name:<7} records from offset {first_offset}, marker at {marker_offset}"
            )
        segments = len(list((self._place / "river-0").glob("*.log")))
        self._console.print(
            f"   {segments} segments: the demo allows {SEGMENT_BYTES} bytes in each"
        )

    def _read(self, log: "DemoLog") -> None:
        from moldau.cli.row_fields import shown_bytes

        self._say("Read it back.")
        everything, committed = log.read(committed=False), log.read(committed=True)
        self._console.print(f"   read_uncommitted sees {len(everything)} records")
        self._console.print(f"   read_committed sees {len(committed)}: the aborted ones are hidden")
        last = committed[-1]
        self._console.print(
            f"   the last one: offset {last.offset}, {shown_bytes(last.key)}, "
            f"{shown_bytes(last.value)}"
        )

    def _crash(self, log: "DemoLog") -> None:
        self._say("Crash in the middle of a write. The dump shows the torn tail:")
        torn = log.crash_while_writing(_TORN_BYTES)
        self._dump(torn, problems_only=True)
        self._say("Start again. The recovery cuts the torn tail and keeps every whole batch:")
        before, after = log.recover()
        self._console.print(f"   log end before the crash: {before}, after the recovery: {after}")
        self._dump(torn, problems_only=True)

    def _dump(self, *paths: Path, problems_only: bool = False) -> None:
        from moldau.cli.tables import Tables
        from moldau.storage.inspection import InspectionOptions, inspect_path
        from moldau.storage.inspection.items import Problem

        tables = Tables(self._console)
        problems = 0
        for path in paths:
            for item in inspect_path(path, InspectionOptions()):
                problems += isinstance(item, Problem)
                if isinstance(item, Problem) or not problems_only:
                    tables.show(item)
        tables.close()
        if problems_only and not problems:
            self._console.print("   [green]no problems[/]")
