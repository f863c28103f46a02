"""The name of the group that shows where a query is: the user's, or one made of what it reads."""

import hashlib
import re

from moldau.core.spark.options import (
    Assign,
    SourceOptions,
    Strategy,
    Subscribe,
    SubscribePattern,
)

_LENGTH_MAX = 120


def group_of(options: SourceOptions) -> str:
    """The same after a restart. Two queries that read the same need names of their own."""
    given = options.settings.get("group.id")
    if given:
        return given
    name = f"{options.group_prefix}.{_words(options.strategy)}"
    if len(name) <= _LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[:_LENGTH_MAX]}.{digest}"


def _words(strategy: Strategy) -> str:
    match strategy:
        case Subscribe(topics):
            return "+".join(sorted(topics))
        case SubscribePattern(pattern):
            return re.sub(r"[^A-Za-z0-9._-]", "_", pattern)
        case Assign(partitions):
            return "+".join(map(str, sorted(partitions)))
