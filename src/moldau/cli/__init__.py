"""The command line, one folder per noun. Heavy imports wait until they are needed, so that
`moldau --version` stays quick.
"""

import sys

INTERRUPTED_STATUS = 130
USAGE_STATUS = 2
FAILED_STATUS = 1


def main() -> None:
    """The `moldau` command: exits with its status. A user's mistake never shows a traceback."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        from moldau.cli.version import version_text

        sys.stdout.write(version_text() + "\n")
        return 0
    try:
        return _run_app(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS


def _run_app(arguments: list[str]) -> int:
    import typer

    from moldau.cli.app import app
    from moldau.cli.shared.escaping import printable
    from moldau.cli.version import show_warnings_in_one_line
    from moldau.protocol.errors import MoldauError

    show_warnings_in_one_line()
    try:
        status = app(arguments, prog_name="moldau", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED_STATUS
    except (MoldauError, OSError) as error:
        # One line for each problem of a pipeline; a line break in a name must not add another.
        problems = getattr(error, "problems", [error])
        lines = [printable(_line_of(problem)) for problem in problems]
        sys.stderr.write("moldau: " + "\n".join(lines) + "\n")
        return FAILED_STATUS
    except Exception as error:
        # A usage error: typer moved its class between releases, the method stayed.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "moldau"
        # Without a message: a command without arguments, and its help has been shown.
        if message := format_message():
            sys.stderr.write(f"{command}: {printable(message)} Try '{command} --help'.\n")
        return USAGE_STATUS
    return status if isinstance(status, int) else 0


def _line_of(error: object) -> str:
    """The message, for an OSError without its number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)
