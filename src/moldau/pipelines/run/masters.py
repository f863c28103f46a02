"""Checks the address of a Spark master before Spark starts."""

import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from moldau.protocol.errors import MoldauError

_CONNECT_S = 10.0
_STANDALONE_PORT = 7077


def is_local(master: str) -> bool:
    return master.startswith("local")


def check_master(master: str, variables: Mapping[str, str] = os.environ) -> None:
    """Raises MoldauError for problems that Spark would report late or in a hundred lines."""
    if is_local(master):
        return
    if master == "yarn":
        if not (variables.get("HADOOP_CONF_DIR") or variables.get("YARN_CONF_DIR")):
            raise MoldauError(
                "--master yarn: HADOOP_CONF_DIR must name the folder with yarn-site.xml"
            )
        return
    addresses = _addresses(master)
    failures = [failure for address in addresses if (failure := _unreachable(*address)) is not None]
    if len(failures) == len(addresses):
        raise MoldauError(f"--master {master} is not reachable: {'; '.join(failures)}")


def _addresses(master: str) -> list[tuple[str, int]]:
    if master.startswith("spark://"):
        return [_address(f"//{host}", master, _STANDALONE_PORT) for host in master[8:].split(",")]
    if master.startswith("k8s://"):
        inner = master[6:] if "://" in master[6:] else f"https://{master[6:]}"
        return [_address(inner, master, 80 if inner.startswith("http:") else 443)]
    raise MoldauError(f"--master {master}: write local[*], spark://host:7077, yarn or k8s://…")


def _address(url: str, master: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        found = parts.hostname, parts.port or port
    except ValueError:
        found = None, port
    if found[0] is None:
        raise MoldauError(f"--master {master}: the host is missing")
    return found[0], found[1]


def _unreachable(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return None
