"""A server.properties that somebody names on the command line, and the port that goes before it."""

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


def with_port(properties: dict[str, str], port: int) -> dict[str, str]:
    """The first client listener of the file gets another port, also where it is advertised."""
    controllers = {
        name.strip() for name in properties.get("controller.listener.names", "").split(",")
    }
    listeners = properties.get("listeners", "PLAINTEXT://:9092")
    names = [_name(listener) for listener in listeners.split(",")]
    first = next((name for name in names if name not in controllers), "")
    changed = {**properties, "listeners": listeners}
    for setting in ("listeners", "advertised.listeners"):
        if setting in changed:
            changed[setting] = ",".join(
                f"{each.rpartition(':')[0]}:{port}" if _name(each) == first else each
                for each in changed[setting].split(",")
            )
    return changed


def _name(listener: str) -> str:
    return listener.partition("://")[0].strip()
