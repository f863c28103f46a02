"""Sends requests from one broker to another. Coordinators and partitions always communicate by
requests. Within one process these are not encoded, and nothing else differs.
"""

from typing import TYPE_CHECKING, Protocol

from moldau.broker.server.context import ConfigHolder, Peer
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId

if TYPE_CHECKING:
    from moldau.broker.server.dispatch import Dispatcher
    from moldau.net.clock import Clock

_NO_CONNECTION = 0


class Peers(Protocol):
    async def send(
        self, broker_id: BrokerId, request: Message, version: int | None = None
    ) -> Message:
        """Uses the newest version if `version` is None. The request belongs to the receiver from
        now on. Raises BROKER_NOT_AVAILABLE for a broker that cannot be reached,
        REQUEST_TIMED_OUT for one that does not answer within request.timeout.ms.
        """


class LocalPeers:
    """Reaches only this node, which serves the request as on the inter-broker listener."""

    def __init__(self, node_id: BrokerId, settings: ConfigHolder, clock: "Clock") -> None:
        self._node_id = node_id
        self._settings = settings
        self._clock = clock
        self._dispatcher: Dispatcher | None = None

    def serve_with(self, dispatcher: "Dispatcher") -> None:
        """Set later than the constructor, because the dispatcher is created after its callers."""
        self._dispatcher = dispatcher

    async def send(
        self, broker_id: BrokerId, request: Message, version: int | None = None
    ) -> Message:
        dispatcher, config = self._dispatcher, self._settings.current
        if broker_id != self._node_id or dispatcher is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} cannot be reached from here"
            )
        if version is None:
            version = request.VERSIONS[1]
        peer = Peer(
            _NO_CONNECTION, config.inter_broker_name, "127.0.0.1", 0, is_privileged_listener=True
        )
        timeout_ms = config.request_timeout_ms
        try:
            async with self._clock.timeout(timeout_ms):
                return await dispatcher.serve(peer, request, version)
        except TimeoutError:
            detail = f"{ApiKey(request.API_KEY).name} had no response within {timeout_ms} ms"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail) from None
        except MalformedRequestError as error:
            # Over the network the peer would have closed the connection.
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from None
