"""Moldau: Apache Kafka rebuilt in Python, with blocking clients. Importing this package is cheap:
a client is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.client.admin.blocking import Admin
    from moldau.client.consumer.blocking import Consumer
    from moldau.client.producer.blocking import Producer
    from moldau.core.consumer.positions import OffsetAndMetadata
    from moldau.types import TopicPartition

__all__ = [
    "Admin",
    "Consumer",
    "OffsetAndMetadata",
    "Producer",
    "TopicPartition",
    "__version__",
]

__version__ = "0.2.0"

_LAZY = {
    "Admin": "moldau.client.admin.blocking",
    "Consumer": "moldau.client.consumer.blocking",
    "OffsetAndMetadata": "moldau.core.consumer.positions",
    "Producer": "moldau.client.producer.blocking",
    "TopicPartition": "moldau.types",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'moldau' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
