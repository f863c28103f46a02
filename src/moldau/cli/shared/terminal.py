"""The console for tables."""

from rich.console import Console


class OutputConsole(Console):
    """Tables on stdout. Leaves a closed pipe to `quiet_pipe`."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
