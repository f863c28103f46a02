"""Names for shell completion, fetched from the cluster; none if it does not answer at once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from moldau.cli.shared.connection import Connection
from moldau.config.addresses import DEFAULT_BOOTSTRAP
from moldau.protocol.errors import MoldauError

if TYPE_CHECKING:
    from moldau.client.cluster.cluster import Cluster

_TIMEOUT_MS = 1_000


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(cluster: "Cluster") -> list[str]:
        topics = (await cluster.metadata(None)).topics.values()
        return sorted(topic.name for topic in topics if not topic.is_internal)

    return _matching(ctx, incomplete, names)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(cluster: "Cluster") -> list[str]:
        from moldau.client.admin.groups import list_groups

        return [group.group_id for group in await list_groups(cluster)]

    return _matching(ctx, incomplete, names)


def complete_transactional_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(cluster: "Cluster") -> list[str]:
        from moldau.client.admin.transactions import list_transactions

        listed, _ = await list_transactions(cluster)
        return [transaction.transactional_id for transaction in listed]

    return _matching(ctx, incomplete, names)


def _matching(
    ctx: Any, incomplete: str, names: Callable[["Cluster"], Awaitable[list[str]]]
) -> list[str]:
    from moldau.client.cluster.cluster import Cluster
    from moldau.core.client.backoff import Backoff

    options = ctx.params if ctx is not None else {}
    connection = Connection(
        options.get("bootstrap") or DEFAULT_BOOTSTRAP, options.get("command_config")
    )

    async def fetch() -> list[str]:
        settings = replace(
            connection.settings(),
            retries_max=0,
            retry_for_ms=_TIMEOUT_MS,
            connect_timeout=Backoff(_TIMEOUT_MS, _TIMEOUT_MS),
        )
        async with asyncio.timeout(_TIMEOUT_MS / 1000), Cluster(settings) as cluster:
            return await names(cluster)

    try:
        fetched = asyncio.run(fetch())
    except (MoldauError, OSError, TimeoutError):
        return []
    # Control characters in a name could take over the terminal.
    return [name for name in fetched if name.startswith(incomplete) and name.isprintable()]
