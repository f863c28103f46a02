"""The text of `moldau --version`, and how warnings look on the command line."""

import sys
import warnings


def version_text() -> str:
    # Imported here: they are slow to import, and every command imports this module.
    import platform
    from importlib.metadata import version

    with warnings.catch_warnings():
        # The text below says the same as the warning.
        warnings.simplefilter("ignore")
        from moldau.compiled import USE_COMPILED
    loops = "yes" if USE_COMPILED else "no (Python twins)"
    return (
        f"moldau {version('moldau')}, Python {platform.python_version()}, compiled loops: {loops}"
    )


def show_warnings_in_one_line() -> None:
    """Show warnings as one line, without the source line that Python adds."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        sys.stderr.write(f"moldau: note: {message}\n")

    warnings.showwarning = show
