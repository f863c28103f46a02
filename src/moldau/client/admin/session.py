"""The base of the asyncio admin client: settings, the cluster, retries, and results per item."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from moldau.client.arguments.admin import AdminArguments
from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.settings import admin_settings
from moldau.client.config import client_config
from moldau.client.errors import ClientError, ClosedError
from moldau.config.client_settings.admin import AdminConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

Result = TypeVar("Result")
Item = TypeVar("Item")


class AdminSession:
    """The life of an admin client, and how its methods send their requests."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[AdminArguments],
    ) -> None:
        """Checks the settings. The first call opens the first connection.

        Args:
            bootstrap_servers: Addresses of brokers to start from, `"host:port"`: a list, or a text
                with commas.
            config: Settings by Kafka's names, `{"request.timeout.ms": 5000}`.
            **settings: Settings as arguments, `request_timeout_ms=5000`.

        Raises:
            ConfigError: A setting is unknown, given twice, or has a wrong value.
        """
        arguments = {**settings, "bootstrap_servers": bootstrap_servers}
        self.config = client_config(AdminConfig, config, arguments)
        self._cluster = Cluster(admin_settings(self.config))
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections. Closing twice does nothing."""
        if not self._is_closed:
            self._is_closed = True
            await self._cluster.__aexit__(None, None, None)

    async def _with_retries(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        self._check_open()
        return await self._cluster.with_retries(attempt)

    async def _each(
        self, items: Iterable[Item], attempt: Callable[[Item], Awaitable[Result]]
    ) -> dict[Item, Result | KafkaError]:
        """Returns the result of each item, or the error that a broker reported for it."""
        self._check_open()
        done: dict[Item, Result | KafkaError] = {}
        for item in dict.fromkeys(item_list(items)):
            try:
                done[item] = await attempt(item)
            except KafkaError as error:
                done[item] = error
        return done

    async def _with_retries_unless_missing(
        self, attempt: Callable[[], Awaitable[Result]]
    ) -> Result | KafkaError:
        """Retries retriable errors, except UNKNOWN_TOPIC_OR_PARTITION, which it returns."""

        async def once() -> Result | KafkaError:
            try:
                return await attempt()
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                return error

        return await self._cluster.with_retries(once)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this admin client is closed")
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise ClientError("an admin client belongs to the event loop it was first used in")


def item_list(items: Iterable[Item]) -> list[Item]:
    """A list of items. A single str is refused: it would count as a list of its letters."""
    if isinstance(items, str):
        raise ClientError(f"expected a list of names, ['{items}'], not a single str")
    return list(items)
