"""What the suites ask of a client library: the same small surface over each of the three.

A facade adds nothing but names: each call is one call of the library behind it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from moldau.types import TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]
Acks = Literal["0", "1", "all"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLIENT_TIMEOUT_S = 30.0
HEARTBEAT_MS = 100
SESSION_MS = 6_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record to produce; the library chooses what is None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a consumer got it."""

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
    """A consumer that starts at the beginning and commits only when told."""

    revoked: list[set[TopicPartition]]
    """What was taken away, once per rebalance callback."""

    def subscribe(self, topics: Sequence[str]) -> None: ...
    def assign(self, partitions: Iterable[TopicPartition]) -> None: ...
    def assignment(self) -> set[TopicPartition]: ...
    def poll(self) -> list[Received]: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    def position(self, partition: TopicPartition) -> int: ...
    def pause(self, partition: TopicPartition) -> None: ...
    def resume(self, partition: TopicPartition) -> None: ...
    def commit(self, offsets: Mapping[TopicPartition, Committed] | None = None) -> None: ...
    def committed(self, partition: TopicPartition) -> int | None: ...
    def beginning_offset(self, partition: TopicPartition) -> int: ...
    def end_offset(self, partition: TopicPartition) -> int: ...
    def offset_for_time(self, partition: TopicPartition, timestamp: int) -> int | None: ...
    def close(self) -> None: ...


class Library(Protocol):
    name: str
    assignors: tuple[str, ...]
    sends_every_null: bool

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], options: ProducerOptions
    ) -> list[int | None]:
        """Send, wait for all answers; offsets, where the answer has them."""
        ...

    def consumer(self, address: str, options: ConsumerOptions) -> LibraryConsumer: ...
