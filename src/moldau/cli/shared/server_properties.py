"""A server.properties that somebody names on the command line, and the port that goes before it."""

from pathlib import Path
from typing import Annotated

import typer

from moldau.config.broker import BrokerConfig
from moldau.config.properties import parse_properties
from moldau.protocol.errors import MoldauError

Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse settings that nobody knows, instead of a warning.")
]


def read_broker_config(path: Path, *, strict: bool) -> BrokerConfig:
    """Real files carry settings of plug-ins, vendors and releases before: they are named on stderr,
    and refused only if that is asked for.
    """
    properties = read_server_properties(path)
    for name in () if strict else BrokerConfig.unknown_among(properties):
        typer.echo(f"moldau: warning: {BrokerConfig.unknown_complaint(name)}", err=True)
    config = BrokerConfig.parse(properties)
    if strict:
        config.refuse_unknown()
    return config


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
