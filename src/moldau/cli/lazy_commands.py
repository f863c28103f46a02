"""Commands that are imported when they are run: help and completion of the others stay quick."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup

from moldau.platforms import refuse_windows

Command: TypeAlias = typer.Typer | Callable[..., None]
"""A function, or a Typer with commands of its own."""


class LazyCommand(NamedTuple):
    load: Callable[[], Command]
    """Imports the command's module."""
    summary: str
    """The line in the list of commands; the command's own help has the details."""
    panel: str
    needs_arguments: bool = False
    """Without arguments the command shows its help."""
    needs_locks: bool = False
    """The command runs a node or opens log directories, which Windows does not support."""


def lazy_group(commands: dict[str, LazyCommand]) -> type[TyperGroup]:
    """A group class for `typer.Typer(cls=…)` with these commands."""

    class LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for name, command in commands.items():
                self.commands[name] = TyperCommand(
                    name,
                    short_help=command.summary,
                    rich_help_panel=command.panel,
                    rich_markup_mode="rich",
                )

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            if name in commands and command is not None:
                command = load_command(name, commands[name])
            return name, command, rest

    return LazyGroup


def load_command(name: str, lazy: LazyCommand) -> Any:
    if lazy.needs_locks:
        refuse_windows(f"moldau {name}")
    loaded = lazy.load()
    if not isinstance(loaded, typer.Typer):
        function, loaded = loaded, new_app()
        loaded.command(name, no_args_is_help=lazy.needs_arguments)(function)
    command = typer.main.get_command(loaded)
    command.name = name
    return command


def new_app(**settings: Any) -> typer.Typer:
    """A Typer with our usual settings, for a noun with several commands."""
    return typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )
