"""The four codecs with Kafka's framing. Compressed input is untrusted: output is limited, and
memory grows with the bytes actually written, not with the size that a header claims.
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import cramjam

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.compression import Compression, too_large
from moldau.types import Buffer

GZIP_LEVEL_DEFAULT = 6
ZSTD_LEVEL_DEFAULT = 3
# Kafka's default lz4 level is 9 and selects lz4's fast mode; every other level is the slow mode's.
LZ4_LEVEL_DEFAULT = 9

_FIRST_GUESS_BYTES = 64 << 10
_PLAIN_BYTES_MAX = 1 << 20
"""Larger buffers are mapped: zeroing 64 MiB would block all other threads for 0.1 s."""
# Unix only: its default would be memory shared with other processes.
_PRIVATE = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
)
# The message of Rust's writers when the output slice is full, pinned by test_compression.py.
_OUTPUT_FULL = "failed to write whole buffer"

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
# The densest snappy element is a three-byte copy of 64 bytes.
_SNAPPY_RATIO_MAX = 22

# Version 1, independent blocks of 64 KiB, no checksums; the last byte is the descriptor's checksum.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_MAGIC = _LZ4_HEADER[:4]
_LZ4_STORED = 0x8000_0000
_LZ4_BLOCK_BYTES_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}

_be32 = struct.Struct(">i")
_le32 = struct.Struct("<I")


def expanded(codec: Compression, content: Buffer, output_max: int) -> Buffer:
    """Decompresses `content`. Raises MESSAGE_TOO_LARGE and CORRUPT_MESSAGE."""
    try:
        return _DECOMPRESSORS[codec](content, output_max)
    except cramjam.DecompressionError as error:
        raise _corrupt(codec, str(error)) from error


def _corrupt(codec: Compression, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"not {codec.name.lower()}: {reason}")


def _compress_gzip(content: Buffer, level: int | None) -> Buffer:
    chosen = GZIP_LEVEL_DEFAULT if level is None or level < 0 else level
    return bytes(cramjam.gzip.compress(content, level=chosen))


def _compress_zstd(content: Buffer, level: int | None) -> Buffer:
    chosen = ZSTD_LEVEL_DEFAULT if level is None else level
    return bytes(cramjam.zstd.compress(content, level=chosen))


def _compress_snappy(content: Buffer, level: int | None) -> Buffer:
    del level
    out = bytearray(_XERIAL_HEADER)
    view = memoryview(content)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += _be32.pack(len(block))
        out += memoryview(block)
    return out


def _compress_lz4(content: Buffer, level: int | None) -> Buffer:
    """cramjam's frames carry block checksums and Kafka's do not, so the blocks are framed again."""
    fast = level is None or level == LZ4_LEVEL_DEFAULT
    compressor = cramjam.lz4.Compressor(
        level=1 if fast else level, content_checksum=False, block_linked=False
    )
    compressor.compress(bytes(content))
    frame = memoryview(compressor.finish())
    out = bytearray(_LZ4_HEADER)
    for block in _lz4_blocks(frame):
        out += frame[block.start : block.stop]
    out += _le32.pack(0)
    return out


def _decompress_growing(
    decompress_into: Callable[[Buffer, Buffer], int],
    content: Buffer,
    expected_bytes: int,
    output_max: int,
) -> Buffer:
    """Repeats the decompression with a buffer four times as large while the output does not fit. So
    a bomb costs at most the limit, and a correct guess costs one pass.
    """
    size = min(max(expected_bytes, 1), output_max)
    while True:
        out = _room_for(size)
        try:
            written = decompress_into(content, out)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise
            if size >= output_max:
                # The traceback of the error must not keep it alive.
                del out
                raise too_large(output_max) from None
            size = min(max(size * 4, _FIRST_GUESS_BYTES), output_max)
            continue
        if isinstance(out, memoryview):
            return out[:written]
        del out[written:]
        return out


def _room_for(size: int) -> bytearray | memoryview:
    if size <= _PLAIN_BYTES_MAX:
        return bytearray(size)
    return memoryview(mmap.mmap(-1, size, **_PRIVATE))


def _decompress_gzip(content: Buffer, output_max: int) -> Buffer:
    if len(content) < 18:
        raise _corrupt(Compression.GZIP, "too short")
    # The trailer states the size; deflate expands at most 1032 times, so a false size is bounded.
    (claimed,) = _le32.unpack_from(content, len(content) - 4)
    guess = claimed if claimed <= 1032 * len(content) else 4 * len(content)
    guess = min(guess, max(4 * len(content), 1 << 20))
    return _decompress_growing(cramjam.gzip.decompress_into, content, guess, output_max)


def _decompress_zstd(content: Buffer, output_max: int) -> Buffer:
    claimed = _zstd_content_bytes(content)
    if claimed is not None and claimed > output_max:
        raise too_large(output_max)
    guess = 4 * len(content) if claimed is None else claimed
    guess = min(guess, max(4 * len(content), 1 << 20))
    return _decompress_growing(cramjam.zstd.decompress_into, content, guess, output_max)


def _zstd_content_bytes(content: Buffer) -> int | None:
    """The size in the first frame's header, if present."""
    if len(content) < 6 or bytes(content[:4]) != b"\x28\xb5\x2f\xfd":
        return None
    descriptor = content[4]
    single_segment = bool(descriptor & 0x20)
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    if width == 0 or len(content) < start + width:
        return None
    claimed = int.from_bytes(content[start : start + width], "little")
    return claimed + 256 if width == 2 else claimed


def _decompress_lz4(content: Buffer, output_max: int) -> Buffer:
    bound = sum(block.output_bytes_max for block in _lz4_blocks(content))
    guess = min(bound, max(4 * len(content), 1 << 20))
    return _decompress_growing(cramjam.lz4.decompress_into, content, guess, output_max)


class _Lz4Block(NamedTuple):
    start: int  # of the length word
    stop: int  # without the checksum
    output_bytes_max: int


def _lz4_blocks(frame: Buffer) -> Iterator[_Lz4Block]:
    """The blocks of the first frame, found by their lengths; the last one may run past the end."""
    if len(frame) < 7 or bytes(frame[:4]) != _LZ4_MAGIC:
        raise _corrupt(Compression.LZ4, "no frame magic")
    flags = frame[4]
    block_bytes_max = _LZ4_BLOCK_BYTES_MAX.get(frame[5] >> 4 & 7)
    if flags >> 6 != 1 or block_bytes_max is None:
        raise _corrupt(Compression.LZ4, "unknown frame descriptor")
    checksum_bytes = 4 if flags & 0x10 else 0
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    while position + 4 <= len(frame):
        (word,) = _le32.unpack_from(frame, position)
        if word == 0:
            return
        block_bytes = word & ~_LZ4_STORED
        stop = position + 4 + block_bytes
        expanded = block_bytes if word & _LZ4_STORED else 255 * block_bytes
        yield _Lz4Block(position, stop, min(block_bytes_max, expanded))
        position = stop + checksum_bytes


def _decompress_snappy(content: Buffer, output_max: int) -> Buffer:
    view = memoryview(content)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, output_max, 0)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position != len(view):
        if len(view) - position < 4:
            raise _corrupt(Compression.SNAPPY, "half a block length")
        (block_bytes,) = _be32.unpack_from(view, position)
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            # Like snappy-java, reads concatenated streams as one.
            position += len(_XERIAL_HEADER)
            continue
        position += 4
        if not 0 < block_bytes <= len(view) - position:
            raise _corrupt(Compression.SNAPPY, f"block of {block_bytes} bytes")
        out += _decompress_snappy_block(
            view[position : position + block_bytes], output_max, len(out)
        )
        position += block_bytes
    return out


def _decompress_snappy_block(block: memoryview, output_max: int, before_bytes: int) -> Buffer:
    claimed = cramjam.snappy.decompress_raw_len(block)
    if claimed > _SNAPPY_RATIO_MAX * len(block):
        # CVE-2023-34455: the length is untrusted and must not cause an allocation.
        raise _corrupt(Compression.SNAPPY, f"{len(block)} bytes claim to hold {claimed}")
    if before_bytes + claimed > output_max:
        raise too_large(output_max)
    out = _room_for(claimed)
    cramjam.snappy.decompress_raw_into(block, out)
    return out


COMPRESSORS: dict[Compression, Callable[[Buffer, int | None], Buffer]] = {
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[Compression, Callable[[Buffer, int], Buffer]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
