"""The supported codecs, and limits for their output. The codecs themselves are in codecs.py, which
is loaded with the first compressed batch.
"""

from enum import IntEnum

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import Buffer


class Compression(IntEnum):
    """The ids of the low three bits of a batch's attributes; 5 to 7 are unassigned."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# For batches already in a log: Apache Kafka sets no limit, so a legal one may expand far.
STORED_OUTPUT_BYTES_MAX = 1 << 30
OUTPUT_MAX_FLOOR_BYTES = 64 << 20
OUTPUT_MAX_RATIO = 16

# The names of `compression.type`.
COMPRESSION_NAMES = {
    "none": Compression.NONE,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def output_limit(compressed_bytes: int) -> int:
    """The default limit to which a body of this size may expand."""
    return max(OUTPUT_MAX_RATIO * compressed_bytes, OUTPUT_MAX_FLOOR_BYTES)


def codec_of(attributes: int) -> Compression:
    """Raises UNSUPPORTED_COMPRESSION_TYPE for the unassigned ids 5 to 7."""
    codec = attributes & 7
    if codec > Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression id {codec} is not assigned"
        )
    return Compression(codec)


def compress(codec: Compression, content: Buffer, level: int | None = None) -> Buffer:
    """`level` None is the codec's own default; snappy has no levels and ignores it."""
    if codec is Compression.NONE:
        return content
    from moldau.protocol.records.codecs import COMPRESSORS

    return COMPRESSORS[codec](content, level)


def decompress(codec: Compression, content: Buffer, output_max: int) -> Buffer:
    """Raises MESSAGE_TOO_LARGE at the limit (a well-behaved producer then splits its batch) and
    CORRUPT_MESSAGE for input that is not in the codec's format.
    """
    if codec is Compression.NONE:
        if len(content) > output_max:
            raise too_large(output_max)
        return content
    from moldau.protocol.records.codecs import expanded

    return expanded(codec, content, output_max)


def too_large(output_max: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"compressed records expand beyond {output_max} bytes"
    )
