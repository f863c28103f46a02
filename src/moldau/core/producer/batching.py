"""Batches, deliveries and the appender that fills them, compiled if possible. The twin has their
documentation and types.
"""

from typing import TYPE_CHECKING

from moldau.compiled import USE_COMPILED
from moldau.core.producer._batching_twin import (
    DeliveryWaiter,
    Headers,
    Hooks,
    Limits,
    Outcome,
    Piece,
)

if TYPE_CHECKING or not USE_COMPILED:
    from moldau.core.producer._batching_twin import (
        Appender,
        Batch,
        Delivery,
        TopicBuffers,
        leaf_of,
        murmur2,
        partitions_of_keys,
    )
else:
    from moldau.core.producer._batching import (
        Appender,
        Batch,
        Delivery,
        TopicBuffers,
        leaf_of,
        murmur2,
        partitions_of_keys,
    )

__all__ = [
    "Appender",
    "Batch",
    "Delivery",
    "DeliveryWaiter",
    "Headers",
    "Hooks",
    "Limits",
    "Outcome",
    "Piece",
    "TopicBuffers",
    "leaf_of",
    "murmur2",
    "partitions_of_keys",
]
