"""The events that the quorum machine handles, and the effects that it returns. The shell performs
the effects of a step in order, each completely before the next one, so that a vote or an epoch is
on the disk before anything uses it. An effect that changes the log names an event. The machine gets
that event after the step's other effects, and before any other event.
"""

from collections.abc import Hashable
from typing import TypeAlias

from moldau.core.quorum.election import Election
from moldau.core.quorum.history import Changes
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.rpc import (
    Destination,
    Failure,
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
)
from moldau.frozen import frozen
from moldau.protocol.records.control_records import ControlType
from moldau.types import BrokerId, LeaderEpoch, Offset

Token: TypeAlias = Hashable
"""Names a request that came in, so that its response finds the way back."""

# Events


@frozen(kw_only=True)
class Started:
    """The node has started. Its log is open; `election` and `changes` are its contents."""

    election: Election | None
    changes: Changes


@frozen
class TimePassed:
    """`wake_ms` has come."""


@frozen
class Appended:
    """Records are in the log up to `end_offset`, not flushed yet."""

    end_offset: Offset
    changes: Changes = ()


@frozen
class Flushed:
    """Everything before `end_offset` is on this node's disk."""

    end_offset: Offset


@frozen
class Truncated:
    end_offset: Offset


@frozen
class SnapshotInstalled:
    """The log now continues after this snapshot."""

    snapshot: LogPosition
    changes: Changes


@frozen
class SnapshotMade:
    """This node wrote a snapshot of its own."""

    snapshot: LogPosition


@frozen
class WriteRefused:
    """An append or a snapshot was refused, and the log is as it was: bytes that are damaged, or a
    full disk.
    """

    reason: str


@frozen
class Requested:
    """Another node sent a request."""

    token: Token
    request: Request


@frozen
class Abandoned:
    """The connection of a request that waits for its response is closed."""

    token: Token


@frozen
class Responded:
    correlation: int
    response: Response


@frozen
class NotDelivered:
    """No response will come."""

    correlation: int
    failure: Failure


@frozen
class UpgradeRequested:
    """The controller raises kraft.version, after `check_upgrade` allowed it."""

    level: int


@frozen
class ResignRequested:
    """The controller cannot lead in this epoch any longer."""

    epoch: LeaderEpoch


@frozen
class Stopping:
    """The node is shutting down and resigns if it leads. `may_stop` becomes true once a successor
    is known.
    """


Event: TypeAlias = (
    Started
    | TimePassed
    | Appended
    | Flushed
    | Truncated
    | SnapshotInstalled
    | SnapshotMade
    | WriteRefused
    | Requested
    | Abandoned
    | Responded
    | NotDelivered
    | UpgradeRequested
    | ResignRequested
    | Stopping
)

# Effects


@frozen
class StoreElection:
    """Written to the disk and synced before the next effect."""

    election: Election


@frozen
class StartEpoch:
    """The log must know the epoch before its first record."""

    epoch: LeaderEpoch


@frozen
class AppendControlBatch:
    """One batch at the end of the log. Followed by Appended or WriteRefused."""

    epoch: LeaderEpoch
    values: tuple[tuple[ControlType, bytes], ...]


@frozen
class AppendFetched:
    """Records of the leader, with its offsets. Batches of later epochs than `epoch` are refused.
    Followed by Appended or WriteRefused.
    """

    epoch: LeaderEpoch
    records: bytes


@frozen
class TruncateLog:
    """Durably: the recovery point is lowered first. Followed by Truncated."""

    end_offset: Offset


@frozen
class BeginSnapshot:
    """Creates a file for the leader's snapshot and removes that of an earlier transfer."""

    snapshot: LogPosition


@frozen
class AppendSnapshot:
    snapshot: LogPosition
    position: int
    content: bytes


@frozen
class InstallSnapshot:
    """Completes the file and starts the log over after it. Followed by SnapshotInstalled or
    WriteRefused.
    """

    snapshot: LogPosition


@frozen
class DropSnapshot:
    """The transfer will not be completed."""

    snapshot: LogPosition


@frozen
class Send:
    """Followed later by Responded or NotDelivered. A request that still waits for its response
    from the same destination is given up.
    """

    destination: Destination
    correlation: int
    request: Request


@frozen
class Respond:
    token: Token
    response: Response


@frozen
class RespondWithRecords:
    """`response` with records of the log from `offset` on."""

    token: Token
    response: FetchResponse
    offset: Offset
    max_bytes: int


@frozen
class RespondWithSnapshot:
    """`response` with bytes of its snapshot from its position on."""

    token: Token
    response: FetchSnapshotResponse
    max_bytes: int


@frozen
class Commit:
    """Everything before `high_watermark` is committed."""

    high_watermark: Offset


@frozen
class LeaderChanged:
    """If this node leads, it comes after everything before the epoch is committed. NO_LEADER if no
    leader is known, at once when this node stops leading.
    """

    epoch: LeaderEpoch
    leader_id: BrokerId


@frozen
class Noted:
    """For the node's log."""

    text: str


@frozen
class Fail:
    """This node's log contradicts committed records: it must leave the quorum."""

    reason: str


Effect: TypeAlias = (
    StoreElection
    | StartEpoch
    | AppendControlBatch
    | AppendFetched
    | TruncateLog
    | BeginSnapshot
    | AppendSnapshot
    | InstallSnapshot
    | DropSnapshot
    | Send
    | Respond
    | RespondWithRecords
    | RespondWithSnapshot
    | Commit
    | LeaderChanged
    | Noted
    | Fail
)
