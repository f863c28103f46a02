"""Helpers that the handlers of group requests share."""

from moldau.broker.server.context import RequestContext
from moldau.core.groups.member import Caller


def caller_of(ctx: RequestContext) -> Caller:
    """The host in Java's format: it is written to the log, where Apache Kafka's tools show it."""
    return Caller(
        client_id=ctx.client_id, client_host=f"/{ctx.peer.host}", principal=ctx.peer.principal
    )
