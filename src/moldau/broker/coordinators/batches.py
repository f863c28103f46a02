"""Packs the records that a coordinator's shard appends into record batches that its log accepts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from moldau.core.coordinator.effects import AnyAppend, Writer
from moldau.core.coordinator.records import CoordinatorRecord, encode_record
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import BATCH_HEADER_SIZE, Record
from moldau.protocol.records.compression import Compression

_RECORD_OVERHEAD_BYTES_MAX = 36


class PackLimits(NamedTuple):
    batch_bytes_max: int
    compression: Compression
    now_ms: int
    writer: Writer | None = None
    """The transactional producer of all appends; they are pending until its transaction ends."""


class Piece(NamedTuple):
    """Records of one append that are in one batch; the last piece completes the append."""

    append: AnyAppend
    records: Sequence[CoordinatorRecord]
    is_last: bool


class EncodedAppend(NamedTuple):
    """An append that is encoded. Encoding errors surface here, before the append shares a batch
    with others.
    """

    append: AnyAppend
    encoded: list["_Encoded"]

    @classmethod
    def of(cls, append: AnyAppend) -> "EncodedAppend":
        return cls(append, [_Encoded(record, *encode_record(record)) for record in append.records])


def pack(appends: Iterable[EncodedAppend], limits: PackLimits) -> Iterator["PackedBatch"]:
    """Keeps the given order. An atomic append is never divided, even if the log will refuse it."""
    filling = PackedBatch(limits)
    for append, encoded in appends:
        room = limits.batch_bytes_max - BATCH_HEADER_SIZE
        parts = [encoded] if append.is_atomic else list(_divide(encoded, room))
        for number, part in enumerate(parts, start=1):
            if filling.pieces and not filling.has_room(part):
                yield filling
                filling = PackedBatch(limits)
            filling.add(append, part, is_last=number == len(parts))
    if filling.pieces:
        yield filling


class _Encoded(NamedTuple):
    record: CoordinatorRecord
    key: bytes
    value: bytes | None

    @property
    def size_max(self) -> int:
        return _RECORD_OVERHEAD_BYTES_MAX + len(self.key) + len(self.value or b"")


def _divide(encoded: list[_Encoded], room: int) -> Iterator[list[_Encoded]]:
    part: list[_Encoded] = []
    size = 0
    for each in encoded:
        if part and size + each.size_max > room:
            yield part
            part, size = [], 0
        part.append(each)
        size += each.size_max
    if part:
        yield part


class PackedBatch:
    def __init__(self, limits: PackLimits) -> None:
        self._limits = limits
        self._size_max = BATCH_HEADER_SIZE
        self._records: list[Record] = []
        self.pieces: list[Piece] = []

    def has_room(self, part: list[_Encoded]) -> bool:
        size_max = self._size_max + sum(each.size_max for each in part)
        return size_max <= self._limits.batch_bytes_max

    def add(self, append: AnyAppend, part: list[_Encoded], *, is_last: bool) -> None:
        now_ms = self._limits.now_ms
        for each in part:
            self._records.append(Record(len(self._records), now_ms, each.key, each.value))
            self._size_max += each.size_max
        self.pieces.append(Piece(append, [each.record for each in part], is_last))

    def build(self) -> bytes:
        options = BatchOptions(base_offset=0, compression=self._limits.compression)
        writer = self._limits.writer
        if writer is not None:
            options = replace(
                options,
                producer_id=writer.producer_id,
                producer_epoch=writer.producer_epoch,
                is_transactional=True,
            )
        return build_batch(self._records, options)
