"""The name of the consumer group that shows a query's position: given by the user, or made of the
topics that the query reads.
"""

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
    """Returns a name that is the same after a restart. Of several queries that read the same
    topics, each needs its own `kafka.group.id` or `groupIdPrefix`.
    """
    configured = options.settings.get("group.id")
    if configured:
        return configured
    name = f"{options.group_prefix}.{_topics_text(options.strategy)}"
    if len(name) <= _LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[:_LENGTH_MAX]}.{digest}"


def _topics_text(strategy: Strategy) -> str:
    match strategy:
        case Subscribe(topics):
            return "+".join(sorted(topics))
        case SubscribePattern(pattern):
            return re.sub(r"[^A-Za-z0-9._-]", "_", pattern)
        case Assign(partitions):
            return "+".join(map(str, sorted(partitions)))
