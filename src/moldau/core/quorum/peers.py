"""How a node reaches the others: addresses, and requests on their way."""

from moldau.core.quorum.connections import Chance, Connections
from moldau.core.quorum.events import Send
from moldau.core.quorum.history import QuorumHistory
from moldau.core.quorum.options import QuorumOptions
from moldau.core.quorum.rpc import Destination, Endpoints, Request
from moldau.core.quorum.voters import VoterKey

FOREVER_MS = float("inf")


class QuorumPeers:
    def __init__(self, options: QuorumOptions, history: QuorumHistory, chance: Chance) -> None:
        self.connections = Connections(
            options.bootstrap,
            chance,
            request_timeout_ms=options.request_timeout_ms,
            retry_backoff_ms=options.retry_backoff_ms,
        )
        self._listener = options.listener
        self._history = history

    def address_of(self, node_id: int, endpoints: Endpoints) -> Destination | None:
        for endpoint in endpoints:
            if endpoint.listener == self._listener:
                return Destination(node_id, endpoint.host, endpoint.port)
        return None

    def endpoints_of(self, node_id: int) -> Endpoints:
        """The endpoints in the voters record; empty if the node is not a voter."""
        voter = self._history.voters.by_id.get(node_id)
        return () if voter is None else voter.endpoints

    def request(self, destination: Destination, request: Request, now_ms: float) -> Send:
        """The effect that sends it."""
        correlation = self.connections.begin(destination, request, now_ms)
        return Send(destination, correlation, request)

    def ask(self, key: VoterKey, request: Request, now_ms: float) -> tuple[Send | None, float]:
        """A request to a voter, unless one is under way; and when the next may be sent."""
        destination = self.address_of(key.node_id, self.endpoints_of(key.node_id))
        if destination is None:
            return None, FOREVER_MS
        is_ready = self.connections.is_ready(key.node_id, now_ms)
        send = self.request(destination, request, now_ms) if is_ready else None
        return send, self.connections.due_ms(key.node_id, now_ms)
