"""One member of a classic group."""

from dataclasses import dataclass
from typing import TypeAlias

from moldau.core.coordinator.effects import Ticket
from moldau.frozen import frozen
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.sync_group import SyncGroupResponse

JoinTicket: TypeAlias = Ticket[JoinGroupResponse]
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names with their metadata, in order of preference, without duplicates."""

NO_MEMBER_ID = ""
NO_ASSIGNMENT = b""

_MEMBER_BYTES = 1024
"""The memory of a member without its protocols."""
_PROTOCOL_BYTES = 100


def weight_of(protocols: Protocols) -> int:
    """The approximate memory of a member with these protocols."""
    sizes = sum(len(name) + len(metadata) for name, metadata in protocols)
    return _MEMBER_BYTES + _PROTOCOL_BYTES * len(protocols) + sizes


@frozen(kw_only=True)
class Caller:
    """The client that sends a request."""

    client_id: str
    client_host: str
    principal: str


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    """A static member's name, by which it keeps its position over restarts."""
    client_id: str
    client_host: str
    principal: str | None
    """The owner of the member id. None after loading: the first principal to use it owns it."""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    join_ticket: JoinTicket | None = None
    """Its parked JoinGroup: the member has joined the rebalance that is being prepared."""
    sync_ticket: Ticket[SyncGroupResponse] | None = None
    is_new: bool = False
    """Its first JoinGroup is not answered yet, so it cannot send heartbeats."""

    @property
    def weight(self) -> int:
        return weight_of(self.protocols)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"{self.member_id} does not know {protocol!r}")

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def is_excused(self) -> bool:
        """Whether heartbeats are not expected, because a request of the member is parked."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)
