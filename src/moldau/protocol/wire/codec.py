"""Bytes to messages and back, for every message and version. The loops are compiled; their Python
twin gives the same results.

`decode` reads a whole buffer, `decode_prefix` reads a message at an offset and returns its end;
both raise MalformedRequestError for any other input, never read past the buffer, and never allocate
more than the input justifies. `budget` bounds the array elements of one message. `encode` returns
one `bytes`, `encode_chunks` leaves long `records` uncopied and raises MessageTooLargeError beyond a
`budget`. Both directions release the interpreter lock now and then.
"""

from typing import TYPE_CHECKING

from moldau.compiled import USE_COMPILED
from moldau.protocol.wire.primitives import (
    ELEMENT_BUDGET,
    NO_BUDGET,
    TRUSTED_ELEMENT_BUDGET,
    EncodingError,
    MessageTooLargeError,
)

if TYPE_CHECKING or not USE_COMPILED:
    from moldau.protocol.wire._codec_twin import decode, decode_prefix, encode, encode_chunks
else:
    from moldau.protocol.wire._codec import decode, decode_prefix, encode, encode_chunks

__all__ = [
    "ELEMENT_BUDGET",
    "NO_BUDGET",
    "TRUSTED_ELEMENT_BUDGET",
    "EncodingError",
    "MessageTooLargeError",
    "decode",
    "decode_prefix",
    "encode",
    "encode_chunks",
]
