"""ListConfigResources: the resources that have settings. Groups and client metrics subscriptions
are listed only if a setting is stored for them.
"""

from collections.abc import Iterator

from moldau.broker.server.context import BrokerServices, RequestContext
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_KINDS = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)
# Version 0 had another name and knew only this kind.
_KINDS_OF_VERSION_0 = (ConfigResourceType.CLIENT_METRICS,)


def handle_list_config_resources(
    ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    known = _KINDS if ctx.version > 0 else _KINDS_OF_VERSION_0
    kinds = request.resource_types or known
    if not set(kinds) <= set(known):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in known
            if kind in kinds
            for name in _names(ctx.broker, kind)
        ]
    )


def _names(broker: BrokerServices, kind: ConfigResourceType) -> Iterator[str]:
    image = broker.image
    match kind:
        case ConfigResourceType.TOPIC:
            yield from image.topics
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            yield from (
                str(broker_image.broker_id)
                for broker_image in image.brokers.values()
                if not broker_image.is_fenced
            )
        case _:
            yield from (resource.name for resource in image.configs if resource.kind == kind)
