"""The Python twin of _compaction.pyx: same names, same results, for installs without a compiler.
Its map is a dict with the same number of entries, so it takes about six times the memory.
"""

import hashlib

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import Buffer

SLOT_BYTES = 24


class OffsetMap:
    """Key -> the last offset at which the key was seen, in a bounded number of entries. Holds a
    128-bit keyed hash of each key, as Kafka's map holds an MD5, at most `capacity` of them.
    """

    __slots__ = ("_hash_key", "capacity", "latest_offset", "offsets", "slots")

    def __init__(self, *, memory_bytes: int, load_factor: float, hash_key: bytes) -> None:
        if len(hash_key) != 16:
            raise ValueError("the hash key has sixteen bytes")
        self.slots = memory_bytes // SLOT_BYTES
        self.capacity = int(self.slots * load_factor)
        if not 0 < self.capacity < self.slots:
            raise ValueError(f"{memory_bytes} bytes are too few for one key and a free slot")
        self._hash_key = hash_key
        self.clear()

    def __len__(self) -> int:
        return len(self.offsets)

    def clear(self) -> None:
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def get(self, key: Buffer) -> int:
        """-1 if the key is not in the map."""
        return self.offsets.get(self.hashed(key), -1)

    def hashed(self, key: Buffer) -> bytes:
        return hashlib.blake2b(key, digest_size=16, key=self._hash_key).digest()


class _RecordReader:
    """Walks record bytes; every step is checked against the end."""

    __slots__ = (
        "after_length",
        "after_timestamp",
        "base_offset",
        "content",
        "end",
        "has_value",
        "key",
        "offset_delta",
        "timestamp_delta",
    )

    def __init__(self, records: Buffer, base_offset: int) -> None:
        self.content = bytes(records)
        self.base_offset = base_offset
        self.end = 0
        self.after_length = self.after_timestamp = 0
        self.timestamp_delta = self.offset_delta = 0
        self.key: bytes | None = None
        self.has_value = False

    def malformed(self) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at offset {self.base_offset} holds a malformed record",
        )

    def next(self) -> None:
        length, at = self._varint(self.end, len(self.content), 5)
        if length < 1 or length > len(self.content) - at:
            raise self.malformed()
        self.after_length = at
        self.end = end = at + length
        self.timestamp_delta, at = self._varint(at + 1, end, 10)
        self.after_timestamp = at
        self.offset_delta, at = self._varint(at, end, 5)
        key_length, at = self._varint(at, end, 5)
        if key_length > end - at:
            raise self.malformed()
        self.key = None if key_length < 0 else self.content[at : at + key_length]
        value_length, at = self._varint(at + max(key_length, 0), end, 5)
        if value_length > end - at:
            raise self.malformed()
        self.has_value = value_length >= 0

    def _varint(self, at: int, end: int, size_max: int) -> tuple[int, int]:
        raw = shift = 0
        for position in range(at, min(end, at + size_max)):
            byte = self.content[position]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw &= 0xFFFFFFFFFFFFFFFF
                return (raw >> 1) ^ -(raw & 1), position + 1
            shift += 7
        raise self.malformed()


def _write_varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    written = bytearray()
    while raw >= 0x80:
        written.append((raw & 0x7F) | 0x80)
        raw >>= 7
    written.append(raw)
    return bytes(written)


def index_records(
    offset_map: OffsetMap, records: Buffer, count: int, base_offset: int, start_offset: int
) -> bool:
    """Put the keys of records at or after `start_offset` into the map. Returns True if the map was
    full before the end; its `latest_offset` then says how far it got.
    """
    reader = _RecordReader(records, base_offset)
    offsets = offset_map.offsets
    for _ in range(count):
        reader.next()
        offset = base_offset + reader.offset_delta
        if reader.key is None or offset < start_offset:
            continue
        if len(offsets) >= offset_map.capacity:
            return True
        offsets[offset_map.hashed(reader.key)] = offset
        offset_map.latest_offset = offset
    return False


def filter_records(
    offset_map: OffsetMap, records: Buffer, count: int, base_offset: int, keep_tombstones: bool
) -> tuple[int, bytes | None, bool, int]:
    """(records kept, their bytes or None if all are kept, whether they include a tombstone, their
    largest timestamp delta). Records keep their encoding.
    """
    reader = _RecordReader(records, base_offset)
    pieces: list[bytes] = []
    deltas: list[int] = []
    tombstones = False
    for _ in range(count):
        start = reader.end
        reader.next()
        offset = base_offset + reader.offset_delta
        if offset > offset_map.latest_offset:
            keep = True
        elif reader.key is None:
            keep = False
        else:
            is_last = offset >= offset_map.get(reader.key)
            keep = is_last and (reader.has_value or keep_tombstones)
        if keep:
            deltas.append(reader.timestamp_delta)
            tombstones = tombstones or not reader.has_value
            pieces.append(reader.content[start : reader.end])
    if reader.end != len(reader.content):
        raise reader.malformed()
    content = None if len(deltas) == count else b"".join(pieces)
    return len(deltas), content, tombstones, max(deltas, default=0)


def rebase_timestamps(records: Buffer, count: int, shift_ms: int) -> bytes:
    """The same records with `shift_ms` added to every timestamp delta."""
    reader = _RecordReader(records, -1)
    if count < 0 or count > len(reader.content):
        raise reader.malformed()
    pieces: list[bytes] = []
    for _ in range(count):
        reader.next()
        delta = (reader.timestamp_delta + shift_ms + 2**63) % 2**64 - 2**63
        stamped = _write_varint(delta)
        rest = reader.content[reader.after_timestamp : reader.end]
        attributes = reader.content[reader.after_length : reader.after_length + 1]
        pieces += (_write_varint(1 + len(stamped) + len(rest)), attributes, stamped, rest)
    if reader.end != len(reader.content):
        raise reader.malformed()
    return b"".join(pieces)
