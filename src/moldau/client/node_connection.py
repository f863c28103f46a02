"""A connection to one broker and the versions that both sides speak."""

from typing import NamedTuple, TypeVar

from moldau import __version__
from moldau.client.errors import ClientError, check
from moldau.client.settings import ClientSettings
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, RequestChannel
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.schema import Message

Answer = TypeVar("Answer", bound=Message)


class VersionRange(NamedTuple):
    """Inclusive."""

    oldest: int
    newest: int


class NodeConnection:
    def __init__(self, channel: RequestChannel, served: ApiVersionsResponse) -> None:
        self.channel = channel
        self.served = served
        self._ranges = {
            api.api_key: VersionRange(api.min_version, api.max_version) for api in served.api_keys
        }

    @classmethod
    async def open(
        cls, address: Address, clock: Clock, settings: ClientSettings
    ) -> "NodeConnection":
        channel = await RequestChannel.open(address, clock, settings.channel_options)
        try:
            return cls(channel, await _ask_versions(channel))
        except BaseException:
            await channel.close()
            raise

    def serves(self, api_key: int) -> bool:
        return api_key in self._ranges

    def newest_of(self, request_class: type[Message]) -> int:
        """The version that `ask` uses."""
        return self.version_of(request_class.API_KEY, spoken(request_class))

    def version_of(self, api_key: int, wanted: VersionRange) -> int:
        """The newest version that both sides speak and that fits what is wanted."""
        served = self._ranges.get(api_key)
        name = ApiKey(api_key).name
        if served is None:
            raise ClientError(f"the broker at {self.channel.address} does not serve {name}")
        version = min(served.newest, wanted.newest)
        if version < max(served.oldest, wanted.oldest):
            raise ClientError(
                f"the broker at {self.channel.address} serves {name} {served.oldest} to "
                f"{served.newest}, needed is {wanted.oldest} to {wanted.newest}"
            )
        return version

    async def ask(
        self,
        request: Message,
        answer_class: type[Answer],
        wanted: VersionRange | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> Answer:
        version = self.version_of(request.API_KEY, wanted or spoken(type(request)))
        return await self.channel.ask(request, answer_class, version, timeout_ms=timeout_ms)


def spoken(request_class: type[Message]) -> VersionRange:
    """What we speak of an API: everything but versions that are not stable yet."""
    oldest, newest = request_class.VERSIONS
    stable = API_VERSIONS[ApiKey(request_class.API_KEY)].latest_stable
    return VersionRange(oldest, min(newest, stable))


async def _ask_versions(channel: RequestChannel) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
    _, version = spoken(ApiVersionsRequest)
    answer = await channel.ask(request, ApiVersionsResponse, version)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        known = next((api for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS), None)
        version = min(version, known.max_version) if known is not None else 0
        answer = await channel.ask(request, ApiVersionsResponse, version)
    check(answer.error_code, f"{channel.address} refuses to say what it serves")
    return answer
