"""Ways to damage each kind of file in a log directory: for every class of bytes a flip, zeros and
ones; truncation; extra bytes; the file removed; an older version of it restored.
"""

from collections.abc import Iterator
from typing import NamedTuple

from moldau.protocol.records.batches import iterate_batches

# Field -> (first byte, size) in a batch. The last four come after the header.
BATCH_FIELDS = {
    "base offset": (0, 8),
    "length": (8, 4),
    "leader epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
    "body": (61, 4),
}
OUTSIDE_THE_CHECKSUM = frozenset({"base offset", "leader epoch"})


class Damage(NamedTuple):
    """`content` is None if the file is removed. `is_hidden`: the format cannot show the damage."""

    path: str
    name: str
    content: bytes | None
    is_hidden: bool = False


def overwritten(content: bytes, start: int, size: int) -> Iterator[tuple[str, bytes]]:
    end = min(start + size, len(content))
    if end <= start:
        return
    low = content[end - 1] ^ 0x01
    yield "low bit flipped", content[: end - 1] + bytes([low]) + content[end:]
    high = content[start] ^ 0x80
    yield "high bit flipped", content[:start] + bytes([high]) + content[start + 1 :]
    yield "zeros", content[:start] + bytes(end - start) + content[end:]
    yield "ones", content[:start] + b"\xff" * (end - start) + content[end:]


def changed(content: bytes, variants: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    return (pair for pair in variants if pair[1] != content)


def log_damages(path: str, content: bytes) -> Iterator[Damage]:
    batches = list(iterate_batches(content))
    for place in sorted({0, len(batches) // 2, len(batches) - 1} if batches else set()):
        batch = batches[place]
        for field, (start, size) in BATCH_FIELDS.items():
            for how, damaged in changed(
                content, overwritten(content, batch.position + start, size)
            ):
                # The next batch, if any, reveals a wrong offset.
                is_last = place == len(batches) - 1
                hidden = field == "leader epoch" or (field == "base offset" and is_last)
                yield Damage(path, f"batch {place}: {field}: {how}", damaged, hidden)
        end = batch.position + batch.size_in_bytes
        for how, damaged in changed(content, overwritten(content, end - 1, 1)):
            yield Damage(path, f"batch {place}: last byte: {how}", damaged)
        for name, size in (("header", 30), ("body", batch.size_in_bytes - 1), ("length", 9)):
            yield Damage(path, f"cut in the {name} of batch {place}", content[: end - size])
        cut = content[: batch.position]
        yield Damage(path, f"cut before batch {place}", cut, is_hidden=True)
        without = content[: batch.position] + content[end:]
        yield Damage(path, f"batch {place} lost in the middle", without, is_hidden=True)
        doubled = content[:end] + content[batch.position :]
        yield Damage(path, f"batch {place} twice", doubled)
    yield from whole_file(path, content)


def whole_file(path: str, content: bytes) -> Iterator[Damage]:
    hidden = path.endswith((".log", ".txnindex"))
    yield Damage(path, "gone", None, hidden)
    if content:
        yield Damage(path, "empty", b"", hidden)
        yield Damage(path, "half", content[: len(content) // 2])
        yield Damage(path, "all zeros", bytes(len(content)))
        yield Damage(path, "all ones", b"\xff" * len(content))
    yield Damage(path, "zeros after the end", content + bytes(100))
    yield Damage(path, "garbage after the end", content + b"\xa5\x5a" * 50)


def entry_damages(path: str, content: bytes, entry_bytes: int) -> Iterator[Damage]:
    """Every byte of the first, middle and last entry of an index. A transaction index has neither a
    checksum nor a count, so only the batches could show a missing entry.
    """
    hidden = path.endswith(".txnindex")
    count = len(content) // entry_bytes
    for entry in sorted({0, count // 2, count - 1} if count else set()):
        for start in range(entry * entry_bytes, (entry + 1) * entry_bytes):
            for how, damaged in changed(content, overwritten(content, start, 1)):
                name = f"entry {entry}, byte {start % entry_bytes}: {how}"
                yield Damage(path, name, damaged, hidden)
        yield Damage(path, f"cut in entry {entry}", content[: entry * entry_bytes + 1])
        cut = content[: entry * entry_bytes]
        yield Damage(path, f"cut before entry {entry}", cut, hidden)
    yield from whole_file(path, content)


def byte_damages(path: str, content: bytes) -> Iterator[Damage]:
    """A small file: every byte, every cut. A number changed into another number is undetectable."""
    for place in range(len(content)):
        for how, damaged in changed(content, overwritten(content, place, 1)):
            digits = content[place : place + 1].isdigit() and damaged[place : place + 1].isdigit()
            yield Damage(path, f"byte {place}: {how}", damaged, digits)
        yield Damage(path, f"cut at {place}", content[:place])
    yield from whole_file(path, content)


ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34}


def damages(path: str, content: bytes) -> Iterator[Damage]:
    """All kinds of damage for one file."""
    if path.endswith(".log"):
        return log_damages(path, content)
    for suffix, size in ENTRY_BYTES.items():
        if path.endswith(suffix):
            return entry_damages(path, content, size)
    return byte_damages(path, content)
