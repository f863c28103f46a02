"""What the handlers of group requests have in common."""

from moldau.broker.server.context import RequestContext
from moldau.core.groups.member import Caller


def caller_of(ctx: RequestContext) -> Caller:
    """The host as Java prints it: it goes into the log, where Apache Kafka's tools show it."""
    return Caller(
        client_id=ctx.client_id, client_host=f"/{ctx.peer.host}", principal=ctx.peer.principal
    )
