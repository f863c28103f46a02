"""Varints, limits, and the two kinds of errors: bytes that cannot be read and values that cannot be
written.
"""

from typing import NoReturn

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError, MoldauError

STRING_BYTES_MAX = 0x7FFF
LENGTH_MAX = 0x7FFFFFFF
UNKNOWN_TAGS_MAX = 64
"""Per structure. Later versions add a handful of tags; more is an attack."""

ELEMENT_BUDGET = 100_000
"""Array elements in one message, unless the caller sets a limit. It bounds the memory that a small
hostile request can make us allocate; Kafka's largest requests have some ten thousand elements."""
TRUSTED_ELEMENT_BUDGET = 50_000_000
"""For responses of a server that we chose to connect to, and for our own files."""
NO_BUDGET = 1 << 62
"""For messages that we write ourselves."""
BYTES_LIKE_ELEMENT = 256
"""A longer text counts as one more element for each such number of bytes: reading it takes time."""

SHORTENED_LENGTH = 2_000
"""Characters of an error message that was too long to be encoded."""

INLINE_BYTES_MAX = 4096
"""Longer `records` and `bytes` are not copied until the message is joined."""


class EncodingError(MoldauError, ValueError):
    """A field has a value that cannot be encoded."""


class MessageTooLargeError(MoldauError):
    """The message has more elements than the caller allows."""


def malformed(label: str, name: str, problem: str) -> NoReturn:
    raise MalformedRequestError(f"{label}: {name}: {problem}")


def unwritable(label: str, name: str, problem: str) -> NoReturn:
    raise EncodingError(f"{label}: {name}: {problem}")


def shortened(label: str, name: str, text: str, size: int) -> str:
    """The start and the end of an error message of more bytes than a string can have: it quotes
    what a client has sent. Raises EncodingError for any other field.
    """
    if not name.endswith("error_message"):
        unwritable(label, name, f"string of {size} bytes")
    half = SHORTENED_LENGTH // 2
    return f"{text[:half]} ... {text[-half:]}"


def refused(label: str, name: str) -> NoReturn:
    detail = f"{label} cannot carry {name}, which is not at its default"
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)


def read_unsigned_varint(buffer: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Returns the value and its end. At most five bytes and 31 bits: the protocol needs no more."""
    value = 0
    for shift in range(0, 35, 7):
        if offset >= len(buffer):
            raise MalformedRequestError("varint: the input ends inside it")
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > LENGTH_MAX:
                raise MalformedRequestError(f"varint: {value} has more than 31 bits")
            return value, offset
    raise MalformedRequestError("varint: longer than 5 bytes")


def unsigned_varint(value: int) -> bytes:
    if not 0 <= value <= LENGTH_MAX:
        raise EncodingError(f"varint: {value} is out of range")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
