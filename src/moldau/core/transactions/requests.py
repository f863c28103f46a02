"""Requests for a transactional id, independent of the protocol's version, and their results."""

from collections.abc import Collection
from typing import TypeAlias

from moldau.core.transactions.transaction import ProducerIdAndEpoch, Transaction
from moldau.frozen import frozen
from moldau.types import TopicPartition


@frozen(kw_only=True)
class Init:
    """A producer starts. With `expected` it continues after an error unless another has started."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None


@frozen(kw_only=True)
class AddPartitions:
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Collection[TopicPartition]
    client_version: int


@frozen(kw_only=True)
class End:
    transactional_id: str
    producer: ProducerIdAndEpoch
    commits: bool
    client_version: int


@frozen
class Unchanged:
    """The transaction is already in the requested state: there is nothing to write."""

    producer: ProducerIdAndEpoch


@frozen
class Fence:
    """The open transaction is aborted with a new epoch, which fences its producer."""


NextState: TypeAlias = Transaction | Unchanged | Fence
"""A transaction replaces the present one once it is committed."""


@frozen(kw_only=True)
class MarkersNeeded:
    """The end is committed: each partition needs its marker."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commits: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


@frozen
class Completed:
    """Every marker and the completion are committed: the next transaction may begin."""

    transactional_id: str
