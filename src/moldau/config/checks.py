"""The rules that values of settings keep. Each completes the sentence "must be …"."""

import re

from moldau.config.addresses import host_and_port, voter
from moldau.config.schema import Check

_THROTTLED = r"[0-9]+:[0-9]+"


def at_least(minimum: float) -> Check:
    return Check(f"at least {minimum}", lambda value: value >= minimum)


def between(minimum: float, maximum: float) -> Check:
    return Check(f"{minimum} to {maximum}", lambda value: minimum <= value <= maximum)


def one_of(*allowed: str) -> Check:
    return Check(f"one of {', '.join(allowed)}", lambda value: value in allowed, allowed)


def one_of_any_case(*allowed: str) -> Check:
    lowered = {name.lower() for name in allowed}
    usual = tuple(spelled for name in allowed for spelled in (name.upper(), name.lower()))
    return Check(
        f"one of {', '.join(allowed)} in any case", lambda value: value.lower() in lowered, usual
    )


def each_of(*allowed: str) -> Check:
    return Check(
        f"a list of {', '.join(allowed)}", lambda items: all(item in allowed for item in items)
    )


def some_of(*allowed: str) -> Check:
    return Check(
        f"at least one of {', '.join(allowed)}",
        lambda items: bool(items) and all(item in allowed for item in items),
    )


NOT_EMPTY = Check("more than nothing", bool)

GZIP_LEVEL = Check("-1 or 1 to 9", lambda level: level == -1 or 1 <= level <= 9)


def _are_throttled(items: tuple[str, ...]) -> bool:
    return items == ("*",) or all(re.fullmatch(_THROTTLED, item) for item in items)


THROTTLED_REPLICAS = Check("* or a list of partition:broker", _are_throttled)

VOTERS = Check("a list of id@host:port", lambda items: all(map(voter, items)))
SERVERS = Check("a list of host:port", lambda items: all(map(host_and_port, items)))
