"""A connection of one of our nodes to another, which may be older or newer: the versions that it
serves are known before the first request.
"""

from collections.abc import Mapping

from moldau import __version__
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelError, ChannelOptions, RequestChannel
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import error_code
from moldau.protocol.messages import request_class
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


class NegotiatedChannel:
    def __init__(self, channel: RequestChannel, served: Mapping[int, tuple[int, int]]) -> None:
        """`served` has the oldest and the newest version of each API."""
        self.channel = channel
        self.served = served

    @classmethod
    async def open(
        cls, address: Address, clock: Clock, options: ChannelOptions
    ) -> "NegotiatedChannel":
        """Raises ChannelError."""
        channel = await RequestChannel.open(address, clock, options)
        try:
            answer = await _versions(channel)
        except BaseException:
            channel.drop("the versions that it serves are unknown")
            raise
        served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        return cls(channel, served)

    def version_of(self, api_key: ApiKey) -> int | None:
        """The newest version that is final and that both sides know; None if there is none."""
        served = self.served.get(api_key)
        if served is None:
            return None
        version = min(served[1], API_VERSIONS[api_key].latest_stable)
        is_known = version >= max(served[0], request_class(api_key).VERSIONS[0])
        return version if is_known else None


async def _versions(channel: RequestChannel) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
    newest = API_VERSIONS[ApiKey.API_VERSIONS].latest_stable
    answer = await channel.ask(request, ApiVersionsResponse, newest)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        # Every node knows this one.
        answer = await channel.ask(request, ApiVersionsResponse, 0)
    code = error_code(answer.error_code)
    if code is not ErrorCode.NONE:
        raise ChannelError(f"{channel.address}: {code.name} to ApiVersions")
    return answer
