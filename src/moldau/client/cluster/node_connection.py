"""A connection to one broker: its login, and the versions of requests that both sides support."""

import logging
import os
from typing import NamedTuple, TypeVar

from moldau import __version__
from moldau.client.cluster.settings import ClientSettings
from moldau.client.errors import AuthenticationError, UnsupportedError, check
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, RequestChannel, UntrustedError
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import MoldauError
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.wire.schema import Message

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=Message)

# A login is renewed after 85 to 95 percent of its lifetime, as in Kafka's clients.
_RENEWED_FROM = 0.85
_RENEWED_WITHIN = 0.1


class VersionRange(NamedTuple):
    """Versions of an API, both ends included."""

    oldest: int
    newest: int


class NodeConnection:
    """An open connection, logged in if the settings require it."""

    def __init__(self, channel: RequestChannel, served: ApiVersionsResponse) -> None:
        self.channel = channel
        self.served = served
        self._ranges = {
            api.api_key: VersionRange(api.min_version, api.max_version) for api in served.api_keys
        }

    @classmethod
    async def open(
        cls,
        address: Address,
        clock: Clock,
        settings: ClientSettings,
        tasks: Tasks,
        *,
        connect_timeout_ms: float,
    ) -> "NodeConnection":
        """Connects and logs in. Raises ChannelError or AuthenticationError."""
        try:
            channel = await RequestChannel.open(
                address, clock, settings.channel_options(connect_timeout_ms)
            )
            try:
                connection = cls(channel, await _request_versions(channel))
                await connection._log_in(clock, settings, tasks)
            except BaseException:
                await channel.close()
                raise
        except UntrustedError as error:
            raise AuthenticationError(str(error)) from None
        return connection

    async def _log_in(self, clock: Clock, settings: ClientSettings, tasks: Tasks) -> None:
        login = settings.security.login
        if login is None:
            return
        from moldau.client.cluster.sasl import HANDSHAKE_VERSION, log_in
        from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

        handshake = VersionRange(HANDSHAKE_VERSION, HANDSHAKE_VERSION)
        self.version_of(ApiKey.SASL_HANDSHAKE, handshake)
        version = self.newest_of(SaslAuthenticateRequest)

        async def renew() -> None:
            # No other request may come in between (KIP-368).
            self.channel.hold()
            try:
                renew_in_time(await log_in(self.channel, login, version))
            except MoldauError as error:
                _log.warning("%s", error)
                self.channel.drop(str(error))
            finally:
                self.channel.release()

        def begin() -> None:
            if not self.channel.is_closed:
                _ = tasks.start(renew(), f"log in again at {self.channel.address}")

        def renew_in_time(lifetime_ms: int) -> None:
            if lifetime_ms > 0:
                share = _RENEWED_FROM + _RENEWED_WITHIN * os.urandom(1)[0] / 255
                clock.call_later(lifetime_ms * share, begin)

        renew_in_time(await log_in(self.channel, login, version))

    async def request_versions(self) -> ApiVersionsResponse:
        """Requests the versions that the broker serves now."""
        return await _request_versions(self.channel)

    def serves(self, api_key: int) -> bool:
        return api_key in self._ranges

    def newest_of(self, request_class: type[Message]) -> int:
        """The newest version that `send` may use."""
        return self.version_of(request_class.API_KEY, supported_versions(request_class))

    def version_of(self, api_key: int, wanted: VersionRange) -> int:
        """The newest version that both sides support within a range."""
        served = self._ranges.get(api_key)
        name = ApiKey(api_key).name
        if served is None:
            raise UnsupportedError(f"the broker at {self.channel.address} does not serve {name}")
        version = min(served.newest, wanted.newest)
        if version < max(served.oldest, wanted.oldest):
            raise UnsupportedError(
                f"the broker at {self.channel.address} serves {name} {served.oldest} to "
                f"{served.newest}, and this client needs {wanted.oldest} to {wanted.newest}"
            )
        return version

    async def send(
        self,
        request: Message,
        answer_class: type[Answer],
        wanted: VersionRange | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> Answer:
        version = self.version_of(request.API_KEY, wanted or supported_versions(type(request)))
        return await self.channel.ask(request, answer_class, version, timeout_ms=timeout_ms)


def supported_versions(request_class: type[Message]) -> VersionRange:
    """The versions that this client supports: all except unstable ones."""
    oldest, newest = request_class.VERSIONS
    stable = API_VERSIONS[ApiKey(request_class.API_KEY)].latest_stable
    return VersionRange(oldest, min(newest, stable))


async def _request_versions(channel: RequestChannel) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
    _, version = supported_versions(ApiVersionsRequest)
    answer = await channel.ask(request, ApiVersionsResponse, version)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        known = next((api for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS), None)
        version = min(version, known.max_version) if known is not None else 0
        answer = await channel.ask(request, ApiVersionsResponse, version)
    check(answer.error_code, f"{channel.address} refuses to list the APIs that it serves")
    return answer
