"""The partition of a coordinator's topic that a key belongs to. Every client and broker must agree,
so it uses Java's arithmetic.
"""

from typing import TYPE_CHECKING

from moldau.compiled import USE_COMPILED

if TYPE_CHECKING or not USE_COMPILED:
    from moldau.core.coordinator._placement_twin import java_hash
else:
    from moldau.core.coordinator._placement import java_hash


def partition_for(key: str, partition_count: int) -> int:
    hashed = java_hash(key)
    # Java cannot negate its smallest integer; Kafka uses zero instead.
    return 0 if hashed == -(1 << 31) else abs(hashed) % partition_count


__all__ = ["java_hash", "partition_for"]
