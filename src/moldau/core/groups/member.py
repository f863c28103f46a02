"""One member of a classic group."""

from dataclasses import dataclass
from typing import TypeAlias

from moldau.core.coordinator.effects import Ticket
from moldau.frozen import frozen

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names and their metadata, most wanted first; no name twice."""

NO_MEMBER_ID = ""
NO_ASSIGNMENT = b""


@frozen(kw_only=True)
class Caller:
    """Who sends a request."""

    client_id: str
    client_host: str
    principal: str


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    """A static member's own name: it keeps its place over restarts."""
    client_id: str
    client_host: str
    principal: str | None
    """Whose id it is. None after loading: the first to use it has it."""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    join_ticket: Ticket | None = None
    """Its JoinGroup is parked: it has joined the rebalance that is being prepared."""
    sync_ticket: Ticket | None = None
    is_new: bool = False
    """Its first JoinGroup has not been answered yet, so it cannot send heartbeats."""

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
        """Whether missing heartbeats mean nothing: it waits for us."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)
