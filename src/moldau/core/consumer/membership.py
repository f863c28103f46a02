"""The interface of a group membership: its events and effects. classic_membership.py implements the
classic protocol; that of KIP-848 can be added beside it.
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
    """The user is notified of revoked partitions."""
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    FAILED = "failed"
    """The user has to handle the error."""


# Events.


@frozen
class Subscribed:
    topics: tuple[str, ...]


@frozen
class Polled:
    """The user called poll, so steps that waited for it continue."""


@frozen
class Prepared:
    """The user has been notified of the revoked partitions."""


@frozen
class Joined:
    answer: JoinGroupResponse


@frozen
class AssignmentComputed:
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
class RequestFailed:
    """A request of a rebalance failed without a response, as its connection broke."""


@frozen
class RejoinNeeded:
    reason: str


@frozen
class PollExpired:
    """The user did not poll for too long."""


@frozen
class CommitRefused:
    """A commit was refused because of the member id or the generation."""

    generation: int
    code: ErrorCode


@frozen
class Left:
    """The user unsubscribed or closed the consumer."""


Event = (
    Subscribed
    | Polled
    | Prepared
    | Joined
    | AssignmentComputed
    | Synced
    | HeartbeatAnswered
    | RequestFailed
    | RejoinNeeded
    | PollExpired
    | CommitRefused
    | Left
)


# Effects.


@frozen
class Prepare:
    """Commit, notify the user, then send Prepared. `is_lost`: other members may already own the
    partitions.
    """

    revoked: Partitions
    is_lost: bool


@frozen
class SendRequest:
    """Send a request to the coordinator, later after a failure. The response comes as an event."""

    request: Message
    after_failure: bool = False
    find_coordinator: bool = False


@frozen
class ComputeAssignment:
    """Compute the assignment as leader; answered with AssignmentComputed."""

    generation: int
    assignor: str
    members: Mapping[str, Subscription]


@frozen
class Assigned:
    """A rebalance is complete. `revoked` are the partitions to give up now."""

    partitions: Partitions
    added: Partitions
    revoked: Partitions


@frozen
class SendWithoutReply:
    """Send a request whose response does not matter, such as LeaveGroup."""

    request: Message


@frozen
class Fail:
    error: KafkaError


Effect = Prepare | SendRequest | ComputeAssignment | Assigned | SendWithoutReply | Fail


class Membership(Protocol):
    state: MemberState
    member_id: str
    generation: int
    owned: Partitions

    @property
    def needs_user(self) -> bool:
        """Whether a step waits for the next poll."""

    @property
    def must_send_heartbeats(self) -> bool:
        """Whether the coordinator expects heartbeats."""

    def step(self, event: Event) -> list[Effect]: ...

    def heartbeat(self) -> Message:
        """The heartbeat request of the current generation."""
