"""The commands of `moldau`, one module each."""

from typing import Annotated

import typer

from moldau.cli.demo import demo
from moldau.cli.dump import dump
from moldau.cli.version import version_text

app = typer.Typer(
    name="moldau",
    help="Apache Kafka's system in Python.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(no_args_is_help=True)(dump)
app.command()(demo)


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
