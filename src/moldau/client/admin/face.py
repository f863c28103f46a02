"""The admin client for asyncio."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from moldau.client.cluster import Cluster
from moldau.client.config import client_config
from moldau.client.settings import admin_settings
from moldau.config.client_settings.admin import AdminConfig


class Admin:
    def __init__(
        self,
        bootstrap_servers: str | list[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        settings["bootstrap_servers"] = bootstrap_servers
        self.config = client_config(AdminConfig, config, settings)
        self._cluster = Cluster(admin_settings(self.config))

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
        await self._cluster.__aexit__(None, None, None)
