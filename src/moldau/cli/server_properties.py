"""Reads a server.properties that somebody names on the command line."""

from pathlib import Path

from moldau.config.properties import parse_properties
from moldau.protocol.errors import MoldauError


def read_server_properties(path: Path) -> dict[str, str]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MoldauError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        # What Java would have taken it for.
        text = content.decode("iso-8859-1")
    return parse_properties(text, source=str(path))
