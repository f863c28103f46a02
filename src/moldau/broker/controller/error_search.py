"""Whether a response reports a certain error."""

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.wire.schema import Struct


def has_error(message: Struct, code: ErrorCode) -> bool:
    """Whether the response reports the error for the whole request, or for its first element: a
    controller refuses a request as a whole.
    """
    for row in message.FIELDS:
        value = getattr(message, row[0])
        if row[0] == "error_code" and value == code:
            return True
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, Struct) and has_error(first, code):
            return True
    return False
