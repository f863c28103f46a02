"""The command line. Heavy imports wait until they are needed: `moldau --version` stays quick."""

import sys

INTERRUPTED_STATUS = 130
USAGE_STATUS = 2
FAILED_STATUS = 1


def main() -> None:
    """The `moldau` command. Ends with its status, and never with a traceback for what users do."""
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
    from moldau.cli.version import show_warnings_shortly
    from moldau.protocol.errors import MoldauError

    show_warnings_shortly()
    try:
        status = app(arguments, prog_name="moldau", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED_STATUS
    except (MoldauError, OSError) as error:
        # A pipeline has as many lines as problems; names in them make no more.
        lines = [printable(_line_of(one)) for one in getattr(error, "problems", [error])]
        sys.stderr.write("moldau: " + "\n".join(lines) + "\n")
        return FAILED_STATUS
    except Exception as error:
        # Usage errors: typer has moved their class between its releases, their method stayed.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "moldau"
        # Without a message it was a command without arguments, whose help has been shown.
        if message := format_message():
            sys.stderr.write(f"{command}: {printable(message)} Try '{command} --help'.\n")
        return USAGE_STATUS
    return status if isinstance(status, int) else 0


def _line_of(error: object) -> str:
    """Without the number that Python puts before what the system says."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)
