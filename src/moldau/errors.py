"""The errors that Moldau raises. `KafkaError` is an error that a broker reported, with its code;
`ClientError` is an error on this side. Each text is one line that says what to do.
"""

from moldau.client.consumer.errors import (
    CommitFailedError,
    DamagedRecordsError,
    DeserializationError,
    LogTruncationError,
    NoOffsetError,
    WakeupError,
)
from moldau.client.errors import (
    AuthenticationError,
    ClientError,
    ClientTimeoutError,
    ClosedError,
    ConfigError,
    NoBrokerError,
    UnknownTopicError,
    UnsupportedError,
)
from moldau.core.producer.transaction_states import (
    MustAbortError,
    MustStopError,
    TransactionMisuseError,
)
from moldau.net.request_channel import ChannelError
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError

__all__ = [
    "AuthenticationError",
    "ChannelError",
    "ClientError",
    "ClientTimeoutError",
    "ClosedError",
    "CommitFailedError",
    "ConfigError",
    "DamagedRecordsError",
    "DeserializationError",
    "ErrorCode",
    "KafkaError",
    "LogTruncationError",
    "MoldauError",
    "MustAbortError",
    "MustStopError",
    "NoBrokerError",
    "NoOffsetError",
    "TransactionMisuseError",
    "UnknownTopicError",
    "UnsupportedError",
    "WakeupError",
]
