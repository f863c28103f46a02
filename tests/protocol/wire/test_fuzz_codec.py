"""Hostile bytes: more than 100,000 damaged frames of every message and version. Each is either read
or refused with MalformedRequestError; no other error is raised and memory stays within bounds.

The damage knows the format: every truncation, every position overwritten with the lengths that
break naive readers, two messages spliced, bytes flipped. A seed makes every failure repeatable.
"""

import gc
import random
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from protocol.codec_loops import COMPILED, TWIN
from protocol.codec_values import all_class_versions, example_message

from moldau.net.frame_reader import FrameReader
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.messages import message_class
from moldau.protocol.wire.frame import read_request
from moldau.protocol.wire.primitives import ELEMENT_BUDGET
from moldau.protocol.wire.schema import Message
from moldau.types import Buffer

FRAMES_MIN = 100_000
# Wide and compact lengths that a naive reader would trust.
LENGTHS = [
    value.to_bytes(size, "big", signed=True)
    for size, values in (
        (2, (-32768, -2, -1, 0, 1, 32767)),
        (4, (-(1 << 31), -2, -1, 0, 1, 1 << 15, (1 << 31) - 1)),
    )
    for value in values
] + [
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\xff",
    b"\xff\xff\x03",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80",
]
# Objects for a byte: a structure of a few slots from two bytes of input, with room to spare.
OBJECT_BYTES_PER_INPUT_BYTE = 100
FIXED_BYTES = 64 * 1024

Frames = list[tuple[type[Message], int, bytes]]


def whole_frames() -> Frames:
    return [
        (kind, version, COMPILED.encode(example_message(kind, version), version))
        for kind, version in all_class_versions()
    ]


def truncations(wire: bytes, step: int) -> Iterator[bytes]:
    for end in range(0, len(wire), step):
        yield wire[:end]


def overwrites(wire: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        place = rng.randrange(len(wire) + 1)
        length = rng.choice(LENGTHS)
        yield wire[:place] + length + wire[place + len(length) :]


def flips(wire: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        damaged = bytearray(wire)
        for _ in range(rng.randint(1, 4)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        yield bytes(damaged)


def splices(wire: bytes, other: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        start, end = rng.randrange(len(wire) + 1), rng.randrange(len(other) + 1)
        yield wire[:start] + other[end:]
        yield wire[:start] + wire[start // 2 :]


def damaged_frames(frames: Frames, seed: int, step: int, count: int) -> Iterator[tuple[Any, ...]]:
    rng = random.Random(seed)
    for kind, version, wire in frames:
        other = rng.choice(frames)[2]
        for damaged in truncations(wire, step):
            yield kind, version, damaged
        for damaged in overwrites(wire, rng, count):
            yield kind, version, damaged
        for damaged in flips(wire, rng, count // 2):
            yield kind, version, damaged
        for damaged in splices(wire, other, rng, count // 4):
            yield kind, version, damaged


def read_or_refuse(loops: Any, kind: type[Message], version: int, wire: Buffer) -> Any:
    """The message, or the text of the refusal. Any other exception fails the test."""
    try:
        return loops.decode(kind, version, wire)
    except MalformedRequestError as refusal:
        return str(refusal)


def test_damaged_frames_are_read_or_cleanly_refused() -> None:
    frames = whole_frames()
    tried = refused = 0
    for kind, version, wire in damaged_frames(frames, seed=1, step=1, count=80):
        tried += 1
        refused += isinstance(read_or_refuse(COMPILED, kind, version, wire), str)
    assert tried >= FRAMES_MIN
    assert refused > tried // 2


def test_the_twin_reads_and_refuses_the_same_damaged_frames_with_the_same_text() -> None:
    frames = whole_frames()
    for kind, version, wire in damaged_frames(frames, seed=2, step=11, count=8):
        ours = read_or_refuse(COMPILED, kind, version, wire)
        # As text: a damaged float can be NaN, which is not equal to itself.
        assert repr(ours) == repr(read_or_refuse(TWIN, kind, version, wire))


def test_a_frame_cut_short_anywhere_is_always_refused() -> None:
    """No message is a prefix of itself: a reader that guesses the rest would be wrong."""
    for kind, version, wire in whole_frames():
        for cut in truncations(wire, 1):
            with pytest.raises(MalformedRequestError):
                COMPILED.decode(kind, version, cut)


def test_memory_is_bounded_by_the_input() -> None:
    frames = sorted(whole_frames(), key=lambda frame: -len(frame[2]))[:150]
    gc.collect()
    tracemalloc.start()
    try:
        for kind, version, wire in damaged_frames(frames, seed=3, step=29, count=12):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            read_or_refuse(COMPILED, kind, version, wire)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before <= FIXED_BYTES + OBJECT_BYTES_PER_INPUT_BYTE * len(wire)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "version", "prefix"),
    [
        ("MetadataRequest", 0, ""),
        ("FetchRequest", 4, "ffffffff 00000000 00000000 00000000 00"),
        ("OffsetFetchRequest", 2, "0001 67"),
    ],
)
def test_the_largest_frame_costs_no_more_than_the_budget_allows(
    name: str, version: int, prefix: str
) -> None:
    """Two megabytes that claim to contain as many elements as possible."""
    count = 1_000_000
    wire = bytes.fromhex(prefix) + count.to_bytes(4, "big") + bytes(6 * count)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequestError, match=f"more than {ELEMENT_BUDGET} elements"):
            COMPILED.decode(message_class(name), version, wire)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < FIXED_BYTES


def test_damaged_streams_end_in_clean_errors() -> None:
    """From the socket's bytes to the request: frames, headers, bodies."""
    rng = random.Random(4)
    scratch = memoryview(bytearray(1024))
    for _ in range(20_000):
        stream = rng.randbytes(rng.randrange(60))
        if rng.random() < 0.8:
            # Let most frames get past the length and the API key.
            key = rng.randrange(93).to_bytes(2, "big")
            body = key + rng.randrange(12).to_bytes(2, "big") + stream
            stream = len(body).to_bytes(4, "big") + body
        frames = FrameReader(scratch, 1 << 20)
        try:
            frames.buffer()[: len(stream)] = stream
            frames.received(len(stream))
            while (frame := frames.next_frame()) is not None:
                read_request(frame).decode_body()
        except (MalformedRequestError, KafkaError):
            continue


def test_reading_leaks_no_references() -> None:
    """Refusals leave half-built objects, which must all be freed."""
    frames = whole_frames()[::7]
    wires = list(damaged_frames(frames, seed=5, step=5, count=8))

    def run() -> None:
        for kind, version, wire in wires:
            read_or_refuse(COMPILED, kind, version, wire)

    run()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(3):
        run()
    gc.collect()
    assert sys.getallocatedblocks() - before < len(wires) // 20
