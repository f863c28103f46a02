"""What any membership in a group is to the consumer around it: events go in, effects come out. The
classic protocol is in classic_membership.py; the one of KIP-848 takes the same place.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from moldau.core.consumer.assignors.contract import Subscription
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.sync_group import SyncGroupResponse
from moldau.protocol.wire.schema import Message
from moldau.types import TopicPartition

Partitions = tuple[TopicPartition, ...]


class MemberState(Enum):
    UNJOINED = "unjoined"
    PREPARING = "preparing"
    """The user is told what is given up."""
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    FAILED = "failed"
    """The user has to decide."""


# Events.


@frozen
class Subscribed:
    topics: tuple[str, ...]


@frozen
class Polled:
    """The user is there: what waited for that goes on."""


@frozen
class Prepared:
    """What was given up is done with."""


@frozen
class Joined:
    answer: JoinGroupResponse


@frozen
class SharesMade:
    generation: int
    shares: Mapping[str, bytes]


@frozen
class Synced:
    generation: int
    answer: SyncGroupResponse


@frozen
class HeartbeatAnswered:
    """The coordinator answered a heartbeat that was sent as this member."""

    generation: int
    member_id: str
    code: ErrorCode


@frozen
class AskFailed:
    """A request of a rebalance came back without an answer: the connection broke."""


@frozen
class RejoinWanted:
    reason: str


@frozen
class PollExpired:
    """The user did not poll for too long."""


@frozen
class CommitRefused:
    """A commit was told that this member is not in the group as it thought."""

    generation: int
    code: ErrorCode


@frozen
class Left:
    """The user is done: unsubscribed or closed."""


Event = (
    Subscribed
    | Polled
    | Prepared
    | Joined
    | SharesMade
    | Synced
    | HeartbeatAnswered
    | AskFailed
    | RejoinWanted
    | PollExpired
    | CommitRefused
    | Left
)


# Effects.


@frozen
class Prepare:
    """Commit, tell the user, and answer with Prepared. `is_lost`: others may have these already."""

    revoked: Partitions
    is_lost: bool


@frozen
class Ask:
    """To the coordinator, after a pause if the last attempt failed. The answer is an event."""

    request: Message
    after_failure: bool = False
    find_coordinator: bool = False


@frozen
class MakeShares:
    """As the leader; answered with SharesMade."""

    generation: int
    assignor: str
    members: Mapping[str, Subscription]


@frozen
class Assigned:
    """A rebalance is over. `revoked` is given up only now."""

    partitions: Partitions
    added: Partitions
    revoked: Partitions


@frozen
class Tell:
    """A request whose answer changes nothing: leaving."""

    request: Message


@frozen
class Fail:
    error: KafkaError


Effect = Prepare | Ask | MakeShares | Assigned | Tell | Fail


class Membership(Protocol):
    state: MemberState
    member_id: str
    generation: int
    owned: Partitions

    @property
    def needs_user(self) -> bool:
        """Something waits for the next poll."""

    @property
    def is_beating(self) -> bool:
        """The coordinator expects to hear of this member."""

    def step(self, event: Event) -> list[Effect]: ...

    def heartbeat(self) -> Message:
        """As this member is now."""
