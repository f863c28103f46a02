"""The client libraries of the suites behind one small interface. A facade only maps names: each
call is one call of its library.

A facade adds nothing but names: each call is one call of its library.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from moldau.types import TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]
Acks = Literal["0", "1", "all"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLIENT_TIMEOUT_S = 30.0
HEARTBEAT_MS = 100
SESSION_MS = 6_000
TRANSACTION_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record to produce; the library chooses for fields that are None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A record that a consumer received."""

    partition: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Committed(NamedTuple):
    offset: int
    metadata: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    codec: str = "none"
    acks: Acks = "all"
    is_idempotent: bool = False
    request_bytes_max: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    group: str | None = None
    assignor: str = "range"
    instance_id: str | None = None
    reads_committed_only: bool = False
    session_ms: int = SESSION_MS


class LibraryConsumer(Protocol):
    """A consumer that starts at the beginning and commits only on request."""

    revoked: list[set[TopicPartition]]
    """The revoked partitions, once per rebalance callback."""

    def subscribe(self, topics: Sequence[str]) -> None: ...
    def assign(self, partitions: Iterable[TopicPartition]) -> None: ...
    def assignment(self) -> set[TopicPartition]: ...
    def poll(self) -> list[Received]: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    def position(self, partition: TopicPartition) -> int: ...
    def pause(self, partition: TopicPartition) -> None: ...
    def resume(self, partition: TopicPartition) -> None: ...
    def commit(self, offsets: Mapping[TopicPartition, Committed] | None = None) -> None: ...
    def membership(self) -> Any:
        """The identity of the consumer in its group, as the library passes it to a transaction."""
        ...

    def committed(self, partition: TopicPartition) -> int | None: ...
    def beginning_offset(self, partition: TopicPartition) -> int: ...
    def end_offset(self, partition: TopicPartition) -> int: ...
    def offset_for_time(self, partition: TopicPartition, timestamp: int) -> int | None: ...
    def close(self) -> None: ...


class LibraryTransactions(Protocol):
    """A producer with a transactional id, which fences an earlier producer with that id."""

    def begin(self) -> None: ...
    def send(self, topic: str, *values: bytes, partition: int = 0) -> None: ...
    def flush(self) -> None:
        """Wait until everything sent has its response; raise an error if one is a refusal."""
        ...

    def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: Any) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Library(Protocol):
    name: str
    assignors: tuple[str, ...]
    sends_every_null: bool
    refusal: type[Exception]
    """The base class of its errors."""
    names_members: bool
    """Whether offsets in a transaction say which member of the group they come from."""

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], options: ProducerOptions
    ) -> list[int | None]:
        """Send records and wait for all responses. Returns their offsets, if the responses contain
        them.
        """
        ...

    def consumer(self, address: str, options: ConsumerOptions) -> LibraryConsumer: ...
    def transactions(
        self, address: str, transactional_id: str, timeout_ms: int = TRANSACTION_MS
    ) -> LibraryTransactions: ...
    def says_fenced(self, error: Exception) -> bool: ...
