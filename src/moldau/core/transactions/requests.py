"""What is asked about a transactional id, whatever the protocol's version, and what comes of it."""

from collections.abc import Collection
from typing import TypeAlias

from moldau.core.transactions.transaction import ProducerIdAndEpoch, Transaction
from moldau.frozen import frozen
from moldau.types import TopicPartition


@frozen(kw_only=True)
class Init:
    """A producer begins. With `expected` it goes on after an error, unless another has begun."""

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
class Known:
    """It is so already: nothing is to be written."""

    producer: ProducerIdAndEpoch


@frozen
class Fence:
    """What is open is aborted, with an epoch that its producer does not have."""


Outcome: TypeAlias = Transaction | Known | Fence
"""A transaction is what becomes of the present one once that is in the log."""


@frozen(kw_only=True)
class MarkersNeeded:
    """The end is decided and in the log: each partition must be told."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commits: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


@frozen
class Completed:
    """Every partition has been told, and so has the log: the next transaction may begin."""

    transactional_id: str
