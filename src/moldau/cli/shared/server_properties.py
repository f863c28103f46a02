"""Reads a server.properties named on the command line, and overrides its port."""

from pathlib import Path
from typing import Annotated

import typer

from moldau.config.broker import BrokerConfig
from moldau.config.properties import parse_properties
from moldau.protocol.errors import MoldauError

Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse unknown settings instead of warning about them.")
]


def read_broker_config(path: Path, *, strict: bool) -> BrokerConfig:
    """Files often carry settings of plug-ins, vendors and older releases: unknown settings are
    reported on stderr, and refused only with `strict`.
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
        # Java's encoding of properties files.
        text = content.decode("iso-8859-1")
    return parse_properties(text, source=str(path))


def with_port(properties: dict[str, str], port: int) -> dict[str, str]:
    """Gives the file's first client listener another port, also where it is advertised."""
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
