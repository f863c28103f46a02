"""One connection to a controller's listener. Each request has the newest version that is stable and
that both sides know.
"""

from moldau import __version__
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelOptions, RequestChannel
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages import response_class
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.wire.schema import Message, Struct

_SOFTWARE = "moldau-broker"


class ControllerConnection:
    def __init__(self, channel: RequestChannel, served: dict[int, tuple[int, int]]) -> None:
        self.channel = channel
        self._served = served

    @classmethod
    async def open(
        cls, address: Address, clock: Clock, options: ChannelOptions
    ) -> "ControllerConnection":
        """Raises ChannelError, or KafkaError if the node refuses to name its versions."""
        channel = await RequestChannel.open(address, clock, options)
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE, client_software_version=__version__
        )
        version = API_VERSIONS[ApiKey.API_VERSIONS].latest_stable
        try:
            answer = await channel.ask(request, ApiVersionsResponse, version)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                answer = await channel.ask(request, ApiVersionsResponse, 0)
        except BaseException:
            channel.drop("its API versions are unknown")
            raise
        if answer.error_code:
            channel.drop("its API versions are unknown")
            detail = f"{address} does not report its API versions"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)
        served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        return cls(channel, served)

    @property
    def is_closed(self) -> bool:
        return self.channel.is_closed

    def version_of(self, request: Message) -> int:
        """Raises UNSUPPORTED_VERSION if there is no common version."""
        api_key = ApiKey(request.API_KEY)
        oldest, newest = self._served.get(api_key, (0, -1))
        version = min(newest, API_VERSIONS[api_key].latest_stable)
        if version < max(oldest, request.VERSIONS[0]):
            detail = f"{self.channel.address} does not serve {api_key.name} in a version known here"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)
        return version

    async def ask(self, request: Message, timeout_ms: float) -> Message:
        """Raises ChannelError, or UNSUPPORTED_VERSION."""
        version = self.version_of(request)
        answer_class = response_class(request.API_KEY)
        return await self.channel.ask(request, answer_class, version, timeout_ms=timeout_ms)

    def drop(self, reason: str) -> None:
        self.channel.drop(reason)


def has_error(message: Struct, code: ErrorCode) -> bool:
    """Whether the response reports the error for the whole request, or for its first element: a
    controller refuses a request as a whole.
    """
    for row in message.FIELDS:
        value = getattr(message, row[0])
        if row[0] == "error_code" and value == code:
            return True
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, Struct) and has_error(first, code):
            return True
    return False
