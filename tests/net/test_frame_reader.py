"""Frames are independent of how the socket divides them, and lengths are not trusted."""

import random

import pytest

from moldau.net.frame_reader import SCRATCH_BYTES, FrameReader
from moldau.protocol.errors import MalformedRequestError


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def deliver(frames: FrameReader, chunk: bytes) -> list[bytes]:
    """Writes as an event loop does: into the buffer, as much as fits."""
    got = []
    while chunk:
        buffer = frames.buffer()
        count = min(len(buffer), len(chunk))
        buffer[:count] = chunk[:count]
        chunk = chunk[count:]
        frames.received(count)
        while (view := frames.next_frame()) is not None:
            got.append(bytes(view))
    return got


def new_frames(limit: int = 100 << 20) -> FrameReader:
    return FrameReader(memoryview(bytearray(SCRATCH_BYTES)), limit)


@pytest.mark.parametrize("seed", range(30))
def test_frames_survive_every_way_of_being_cut(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([0, 1, 3, 100, 5000, SCRATCH_BYTES, 3_000_000]) for _ in range(8)]
    bodies = [rng.randbytes(size) for size in sizes]
    stream = b"".join(map(frame, bodies))
    frames = new_frames()
    got: list[bytes] = []
    while stream:
        count = rng.choice([1, 2, 3, 5, 1000, 300_000, 5_000_000])
        got += deliver(frames, stream[:count])
        stream = stream[count:]
    assert got == bodies
    assert frames.pending_bytes == 0


def test_a_large_frame_is_not_copied_into_the_scratch_buffer() -> None:
    frames = new_frames()
    deliver(frames, frame(bytes(1 << 20))[: 200 << 10])
    assert len(frames.buffer()) == (1 << 20) + 4 - (200 << 10)


def test_an_announced_length_takes_no_memory() -> None:
    frames = new_frames()
    deliver(frames, (100 << 20).to_bytes(4, "big") + b"x")
    assert frames.unfinished_bytes <= 4096


def test_a_frame_takes_memory_in_step_with_what_arrives() -> None:
    frames = new_frames()
    size = 20 << 20
    stream = frame(bytes(size))
    sent = 0
    while sent < size - 10_000:
        assert deliver(frames, stream[sent : sent + 10_000]) == []
        sent += 10_000
        assert frames.unfinished_bytes <= max(8 * sent, 4096)
        assert frames.unfinished_bytes <= max(2 << 20, sent)
    assert deliver(frames, stream[sent:]) == [bytes(size)]
    assert frames.unfinished_bytes == 0


@pytest.mark.parametrize("seed", range(8))
def test_waiting_frames_survive_later_reads(seed: int) -> None:
    """As after a slow request: some frames are cut, the rest is kept, more arrives."""
    rng = random.Random(seed)
    sizes = [rng.choice([0, 1, 3, 100, 5000, SCRATCH_BYTES, 1_500_000]) for _ in range(15)]
    bodies = [rng.randbytes(size) for size in sizes]
    stream = b"".join(map(frame, bodies))
    frames = new_frames()
    got: list[bytes] = []
    while stream:
        buffer = frames.buffer()
        count = min(len(buffer), len(stream), rng.choice([1, 2, 7, 6000, 400_000]))
        buffer[:count] = stream[:count]
        stream = stream[count:]
        del buffer
        frames.received(count)
        for _ in range(rng.randrange(3)):
            view = frames.next_frame()
            if view is not None:
                got.append(bytes(view))
        frames.keep()
    while (view := frames.next_frame()) is not None:
        got.append(bytes(view))
    assert got == bodies
    assert frames.waiting_bytes == 0


@pytest.mark.parametrize("length", [-1, -(2**31), 1001])
def test_lengths_outside_the_limit_are_refused(length: int) -> None:
    frames = new_frames(limit=1000)
    with pytest.raises(MalformedRequestError):
        deliver(frames, length.to_bytes(4, "big", signed=True))


def test_good_frames_before_a_bad_length_are_returned() -> None:
    frames = new_frames(limit=1000)
    stream = frame(b"good") + (5000).to_bytes(4, "big")
    frames.buffer()[: len(stream)] = stream
    frames.received(len(stream))
    assert bytes(frames.next_frame() or b"") == b"good"
    with pytest.raises(MalformedRequestError):
        frames.next_frame()


@pytest.mark.parametrize(("head", "name"), [(b"GET / HTTP", "HTTP"), (b"\x16\x03\x01\x02", "TLS")])
def test_other_protocols_are_named(head: bytes, name: str) -> None:
    with pytest.raises(MalformedRequestError, match=name):
        deliver(new_frames(), head)
