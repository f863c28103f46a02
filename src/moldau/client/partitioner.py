"""Which partition a record goes to: by its key, as the Java client does it, or by turns."""

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFF_FFFF


def murmur2(content: bytes) -> int:
    """Kafka's hash of keys, 32 bits without sign."""
    length = len(content)
    value = _SEED ^ length
    whole = length & ~3
    for place in range(0, whole, 4):
        k = int.from_bytes(content[place : place + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = value * _M & _MASK ^ k
    if whole < length:
        value = (value ^ int.from_bytes(content[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


class StickyTurns:
    """Records without a key stay with one partition until it has its fill: full batches."""

    def __init__(self, partition_count: int, fill_bytes: int) -> None:
        self._count = partition_count
        self._fill_bytes = fill_bytes
        self._current = 0
        self._given_bytes = 0

    def next(self, size_bytes: int) -> int:
        if self._given_bytes and self._given_bytes + size_bytes > self._fill_bytes:
            self._current = (self._current + 1) % self._count
            self._given_bytes = 0
        self._given_bytes += size_bytes
        return self._current
