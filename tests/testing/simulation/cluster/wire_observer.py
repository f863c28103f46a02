"""Reads what the voters of a simulated quorum say to each other, as it leaves them: a vote and an
epoch are on the disk before anything relies on them, and so are acknowledged records.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from testing.simulation.history import expect

from moldau.core.quorum.election import Election, decode_election
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import response_class
from moldau.protocol.wire.codec import TRUSTED_ELEMENT_BUDGET
from moldau.protocol.wire.frame import LENGTH_BYTES, read_request, read_response
from moldau.testing.simulated_power import durable_content
from moldau.testing.simulation.node import CONTROLLER_PORT, SimulatedNode
from moldau.testing.simulation.transport import End
from moldau.types import LeaderEpoch

if TYPE_CHECKING:
    from moldau.protocol.wire.schema import Message

_ELECTION = Path("/data/__cluster_metadata-0/quorum-state")
_OF_VOTERS = frozenset({ApiKey.VOTE, ApiKey.FETCH, ApiKey.BEGIN_QUORUM_EPOCH})
_NOTHING = Election(epoch=LeaderEpoch(0))


class Acknowledgement(NamedTuple):
    """A fetch of the metadata log: the follower has everything before the offset."""

    address: str
    leader_address: str
    offset: int
    epoch: int
    """Of the record before."""


class WireObserver:
    def __init__(
        self, nodes: dict[str, SimulatedNode], acknowledged: Callable[[Acknowledgement], None]
    ) -> None:
        """`nodes` by address. `acknowledged` is called for each fetch."""
        self.promised: dict[str, int] = dict.fromkeys(nodes, 0)
        """By address: the highest epoch that the node has named to others."""
        self.voted: list[str] = []
        """Addresses of voters whose votes for others have left since the list was emptied."""
        self._nodes = nodes
        self._acknowledged = acknowledged
        self._ballots: dict[tuple[str, int], int] = {}
        self._begun: dict[End, bytes] = {}
        """Unfinished frames."""
        self._asked: dict[tuple[End, int], tuple[ApiKey, int, Any]] = {}

    def sent(self, end: End, chunk: bytes) -> None:
        is_request = end.name[-1] == ">"
        to = end.other if is_request else end
        if to.port != CONTROLLER_PORT or end.process.address not in self._nodes:
            return
        content = self._begun.pop(end, b"") + chunk
        while len(content) >= LENGTH_BYTES:
            size = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "big")
            if len(content) < size:
                break
            frame, content = content[LENGTH_BYTES:size], content[size:]
            if is_request:
                self._request(end, to, frame)
            else:
                self._response(end, frame)
        if content:
            self._begun[end] = content

    def _request(self, end: End, to: End, content: bytes) -> None:
        frame = read_request(content)
        if frame.api_key not in _OF_VOTERS:
            return
        request = frame.decode_body(budget=TRUSTED_ELEMENT_BUDGET)
        self._asked[to, frame.header.correlation_id] = frame.api_key, frame.version, request
        address = end.process.address
        part: Any = request.topics[0].partitions[0]  # type: ignore[attr-defined]
        match frame.api_key:
            case ApiKey.VOTE if part.pre_vote:
                self._promises(address, part.replica_epoch)
            case ApiKey.VOTE:
                self._votes(address, part.replica_epoch, part.replica_id)
            case ApiKey.FETCH:
                self._promises(address, part.current_leader_epoch)
                self._acknowledged(
                    Acknowledgement(
                        address,
                        to.process.address,
                        part.fetch_offset,
                        part.last_fetched_epoch,
                    )
                )
            case _:
                self._promises(address, part.leader_epoch)

    def _response(self, end: End, content: bytes) -> None:
        correlation_id = int.from_bytes(content[:LENGTH_BYTES], "big")
        asked = self._asked.pop((end, correlation_id), None)
        if asked is None or asked[0] is not ApiKey.VOTE:
            return
        api_key, version, request = asked
        found: tuple[int, Message] = read_response(content, response_class(api_key), version)
        answer: Any = found[1]
        wanted = request.topics[0].partitions[0]
        if answer.topics and answer.topics[0].partitions[0].vote_granted and not wanted.pre_vote:
            self._votes(end.process.address, wanted.replica_epoch, wanted.replica_id)
            self.voted.append(end.process.address)

    # Checks

    def _stored(self, address: str) -> Election:
        content = durable_content(self._nodes[address].machine.disk.root, _ELECTION)
        return _NOTHING if content is None else decode_election(content)

    def _promises(self, address: str, epoch: int) -> None:
        stored = self._stored(address)
        expect(
            stored.epoch >= epoch,
            f"{address} speaks of epoch {epoch}, and has epoch {stored.epoch} on its disk",
        )
        self.promised[address] = max(self.promised[address], epoch)

    def _votes(self, address: str, epoch: int, candidate: int) -> None:
        self._promises(address, epoch)
        stored = self._stored(address)
        voted = None if stored.voted_for is None else stored.voted_for.node_id
        # It may have begun a later epoch already, or have won this one.
        expect(
            stored.epoch > epoch or candidate in {voted, stored.leader_id},
            f"{address} votes for {candidate} in epoch {epoch}, and has {stored} on its disk",
        )
        earlier = self._ballots.setdefault((address, epoch), candidate)
        expect(
            earlier == candidate,
            f"{address} votes for {earlier} and for {candidate} in epoch {epoch}",
        )
