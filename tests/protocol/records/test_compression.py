import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import cramjam
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.compression import (
    Compression,
    compress,
    decompress,
    output_limit,
)
from moldau.types import Buffer


def attempt(codec: Compression, packed: Buffer, limit: int) -> tuple[Buffer, ErrorCode | None]:
    try:
        return decompress(codec, packed, limit), None
    except KafkaError as error:
        return b"", error.code


PACKING = [codec for codec in Compression if codec is not Compression.NONE]
MIB = 1 << 20


@given(
    codec=st.sampled_from(Compression),
    pieces=st.lists(st.binary(max_size=300), min_size=1, max_size=5),
    repeat=st.sampled_from([1, 1, 3, 700]),
)
@settings(deadline=None, max_examples=150)
def test_every_codec_round_trips(codec: Compression, pieces: list[bytes], repeat: int) -> None:
    content = b"".join(pieces) * repeat
    assert bytes(decompress(codec, compress(codec, content), len(content) + 1)) == content


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("size", [1, 32 << 10, (32 << 10) + 1, 64 << 10, (64 << 10) + 1, 3 * MIB])
def test_block_borders_do_not_matter(codec: Compression, size: int) -> None:
    noise = os.urandom(1000)
    content = (noise * (size // 1000 + 1))[:size]
    assert bytes(decompress(codec, memoryview(compress(codec, content)), size)) == content
    incompressible = os.urandom(size)
    assert bytes(decompress(codec, compress(codec, incompressible), size)) == incompressible


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, [-1, *range(1, 10)]),
        (Compression.LZ4, range(1, 18)),
        (Compression.ZSTD, [-131072, -5, 1, 3, 10, 22]),
    ],
)
def test_all_of_kafkas_levels_work(codec: Compression, levels: list[int]) -> None:
    content = b"".join(b"%d little pigs, " % number for number in range(5000))
    for level in levels:
        assert bytes(decompress(codec, compress(codec, content, level), MIB)) == content


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_higher_level_compresses_better(codec: Compression) -> None:
    content = Path(__file__).read_bytes()
    high = 12 if codec is Compression.LZ4 else 9
    # Kafka's lz4 level 9 is the default and the fast mode.
    low = 9 if codec is Compression.LZ4 else 1
    assert len(compress(codec, content, high)) < len(compress(codec, content, low))


def test_lz4_frames_have_kafkas_shape() -> None:
    frame = compress(Compression.LZ4, b"a" * 200_000)
    # Magic; version 1 with independent blocks and no checksums; blocks of 64 KiB; header checksum.
    assert bytes(frame[:7]) == bytes.fromhex("04224d18604082")
    assert bytes(frame[-4:]) == bytes(4)
    lengths, position = [], 7
    while (word := struct.unpack_from("<I", frame, position)[0]) != 0:
        lengths.append(word)
        position += 4 + (word & 0x7FFF_FFFF)
    assert (len(lengths), position + 4) == (4, len(frame))


def _lz4_frame(content: bytes, *, content_checksum: bool, block_linked: bool) -> bytes:
    compressor = cramjam.lz4.Compressor(
        level=1, content_checksum=content_checksum, block_linked=block_linked
    )
    compressor.compress(content)
    return bytes(compressor.finish())


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("linked", [True, False])
def test_other_writers_lz4_frames_are_read(checksum: bool, linked: bool) -> None:
    content = os.urandom(2000) * 100
    frame = _lz4_frame(content, content_checksum=checksum, block_linked=linked)
    assert bytes(decompress(Compression.LZ4, frame, MIB)) == content


def test_snappy_is_read_raw_and_as_java_frames_it() -> None:
    content = os.urandom(500) * 300
    framed = bytes(compress(Compression.SNAPPY, content))
    assert framed[:16] == b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1"
    assert bytes(decompress(Compression.SNAPPY, framed, MIB)) == content
    assert bytes(decompress(Compression.SNAPPY, framed + framed, MIB)) == content * 2
    raw = bytes(cramjam.snappy.compress_raw(content))
    assert bytes(decompress(Compression.SNAPPY, raw, MIB)) == content


def test_gzip_is_read_from_zlib_and_zstd_without_a_size_in_its_header() -> None:
    content = b"hello " * 10_000
    packer = zlib.compressobj(wbits=31)
    assert bytes(decompress(Compression.GZIP, packer.compress(content) + packer.flush(), MIB)) == (
        content
    )
    streaming = cramjam.zstd.Compressor(level=3)
    streaming.compress(content)
    assert bytes(decompress(Compression.ZSTD, bytes(streaming.finish()), MIB)) == content


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("junk", [b"", b"x", b"junk" * 50, bytes(100), b"\xff" * 64])
def test_junk_is_corrupt(codec: Compression, junk: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, junk, MIB)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", PACKING)
@given(seed=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_damaged_input_never_gives_more_than_a_clean_error(
    codec: Compression, seed: Random
) -> None:
    packed = bytearray(compress(codec, b"some text, some more text, " * 200))
    for _ in range(3):
        packed[seed.randrange(len(packed))] = seed.randrange(256)
    unpacked, code = attempt(codec, packed, 100_000)
    assert len(unpacked) <= 100_000
    assert code in {None, ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE}


@pytest.mark.parametrize("codec", PACKING)
def test_every_cut_of_a_packed_body_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, os.urandom(300))
    for size in range(len(packed)):
        unpacked, code = attempt(codec, packed[:size], MIB)
        if codec is Compression.SNAPPY and size == 16:
            # Java's snappy frame has no end mark: a cut between blocks shows only in the records.
            assert (len(unpacked), code) == (0, None)
        else:
            assert code is ErrorCode.CORRUPT_MESSAGE


def _zstd_bomb(size: int) -> bytes:
    return bytes(cramjam.zstd.compress(bytearray(size), level=1))


def _zstd_bomb_without_size(size: int) -> bytes:
    streaming = cramjam.zstd.Compressor(level=1)
    for _ in range(size // MIB):
        streaming.compress(bytes(MIB))
    return bytes(streaming.finish())


def _xerial_bomb(size: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    framed = struct.pack(">i", len(block)) + block
    return b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + framed * (size // MIB)


BOMBS: list[tuple[Compression, Callable[[int], bytes]]] = [
    (Compression.GZIP, lambda size: zlib.compress(bytes(size), wbits=31)),
    (Compression.LZ4, lambda size: bytes(compress(Compression.LZ4, bytes(size)))),
    (Compression.ZSTD, _zstd_bomb),
    (Compression.ZSTD, _zstd_bomb_without_size),
    (Compression.SNAPPY, lambda size: bytes(cramjam.snappy.compress_raw(bytes(size)))),
    (Compression.SNAPPY, _xerial_bomb),
]


@pytest.mark.parametrize(("codec", "make"), BOMBS)
def test_a_bomb_is_refused_at_the_limit_not_after(
    codec: Compression, make: Callable[[int], bytes]
) -> None:
    bomb = make(192 * MIB)
    limit = 4 * MIB
    process = psutil.Process()
    tracemalloc.start()
    before_bytes = process.memory_info().rss
    try:
        with pytest.raises(KafkaError) as caught:
            decompress(codec, bomb, limit)
        # Python's own allocations, whose peak is exact …
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    grown_bytes = process.memory_info().rss - before_bytes
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak_bytes <= 2 * limit + MIB
    # … and the process, for allocations of the codecs outside of Python.
    assert grown_bytes < 32 * MIB


def test_the_limit_itself_is_allowed() -> None:
    for codec in Compression:
        packed = compress(codec, bytes(100_000))
        assert len(decompress(codec, packed, 100_000)) == 100_000
        with pytest.raises(KafkaError) as caught:
            decompress(codec, packed, 99_999)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_snappy_length_is_not_trusted() -> None:
    """CVE-2023-34455: five bytes that claim to contain 2 GiB."""
    claim = bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x07])
    tracemalloc.start()
    try:
        for packed in (claim, b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + struct.pack(">i", 5) + claim):
            with pytest.raises(KafkaError) as caught:
                decompress(Compression.SNAPPY, packed, 2**32)
            assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_a_zstd_size_is_not_trusted() -> None:
    """A frame that claims 60 MiB in its header and contains one byte."""
    frame = bytes.fromhex("28b52ffd") + bytes([0xA0]) + struct.pack("<I", 60 * MIB) + b"\x09\0\0x"
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError):
            decompress(Compression.ZSTD, frame, 64 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("window_log", "accepted"), [(27, True), (28, False), (41, False)])
def test_a_zstd_window_beyond_kafkas_is_refused(window_log: int, accepted: bool) -> None:
    """The largest window that Java's zstd reads too is 128 MiB; unused, it costs no memory."""
    window = (window_log - 10) << 3
    frame = bytes.fromhex("28b52ffd") + bytes([0, window]) + b"\x09\0\0x"
    process = psutil.Process()
    before_bytes = process.memory_info().rss
    unpacked, code = attempt(Compression.ZSTD, frame, MIB)
    assert process.memory_info().rss - before_bytes < 16 * MIB
    expected = (b"x", None) if accepted else (b"", ErrorCode.CORRUPT_MESSAGE)
    assert (bytes(unpacked), code) == expected


def test_the_default_limit_is_sixteen_times_and_at_least_64_mib() -> None:
    assert output_limit(10) == 64 * MIB
    assert output_limit(5 * MIB) == 80 * MIB


def test_a_full_output_is_distinguished_from_damage() -> None:
    """compression.py relies on this text; a different one would turn bombs into CORRUPT_MESSAGE."""
    for module in (cramjam.gzip, cramjam.lz4, cramjam.zstd):
        packed = bytes(module.compress(bytes(1000)))
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            module.decompress_into(packed, bytearray(999))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_large_output_is_not_zeroed_first(codec: Compression) -> None:
    """The interpreter zeroes a bytearray while all other threads wait; mapped memory is new."""
    content = bytes(range(256)) * (3 * MIB // 256)
    expanded = decompress(codec, compress(codec, content), 64 * MIB)
    assert expanded == content
    assert isinstance(expanded, memoryview)
