"""The commands of `moldau`, one module each; a module is imported when its command is run."""

from typing import Annotated

import typer

from moldau.cli.lazy_commands import LazyCommand, lazy_group
from moldau.cli.version import version_text

_FILES = "Files"

COMMANDS = {
    "dump": LazyCommand(
        "moldau.cli.dump:dump", "Show files of a log directory and what is wrong.", _FILES, True
    ),
    "demo": LazyCommand(
        "moldau.cli.demo:demo", "Write, break and recover a small log before your eyes.", _FILES
    ),
}

app = typer.Typer(
    name="moldau",
    cls=lazy_group(COMMANDS),
    help="Apache Kafka's system in Python.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_text())
        raise typer.Exit


@app.callback()
def moldau(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show version, Python, and whether compiled loops are used.",
        ),
    ] = False,
) -> None:
    """Apache Kafka's system in Python."""
