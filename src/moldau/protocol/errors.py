"""The whole exception hierarchy of the lower layers. One enum of codes, one exception that carries
a code; no class per code.
"""

from moldau.protocol.error_codes import RETRIABLE, ErrorCode


class MoldauError(Exception):
    """The base class of all errors that this package raises on purpose. The text of an error is one
    line that says what to do.
    """


class KafkaError(MoldauError):
    """An error with a code of Kafka's protocol: clients raise it if a broker reports it, and
    brokers send it to clients.
    """

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(f"{code.name}: {detail}" if detail else code.name)
        self.code = code
        self.detail = detail

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in RETRIABLE


class MalformedRequestError(MoldauError):
    """The bytes are not Kafka's protocol; the connection must be closed."""


def error_code(number: int) -> ErrorCode:
    """The code with this number; UNKNOWN_SERVER_ERROR for a number that a newer peer sent."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
