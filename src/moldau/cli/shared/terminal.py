"""The console for tables; a module of its own because rich is slow to import."""

from rich.console import Console


class OutputConsole(Console):
    """Writes to stdout. Leaves a closed pipe to `quiet_pipe`."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
