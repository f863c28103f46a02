"""ApiVersions: the APIs that this listener serves, and the features of the cluster. The first
request of every client, so it must be answered for clients of any age.
"""

import re
from collections.abc import Mapping

from moldau.broker.server.context import AnyContext, NodeServices, RequestContext
from moldau.core.controller.features import supported_features
from moldau.core.metadata.image import KRAFT_VERSION, MetadataImage
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_NEWEST = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
_SOFTWARE_FROM = 3
_LEVEL_ZERO_FROM = 4
_NONE = (0, -1)


def handle_api_versions(ctx: AnyContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if not 0 <= ctx.version <= _NEWEST:
        lowest, highest = ctx.served_versions[ApiKey.API_VERSIONS]
        known = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=lowest, max_version=highest)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
    if ctx.version >= _SOFTWARE_FROM:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        ctx.peer.client_software_name, ctx.peer.client_software_version = names
    node, version, served = ctx.node, ctx.version, ctx.served_versions
    kraft_version = None if node.quorum is None else node.quorum.kraft_version
    controller = ctx.broker.controller_versions() if isinstance(ctx, RequestContext) else None
    theirs = None if controller is None else frozenset(controller.items())
    key = (ApiVersionsResponse, ctx.peer.listener_name, version, kraft_version, theirs)

    def compute(image: MetadataImage) -> ApiVersionsResponse:
        ours = served if controller is None else _served_by_both(served, controller)
        return _answer(node, image, version, ours)

    return node.image_cache.of(node.image, key, compute)


def _served_by_both(
    served: Mapping[ApiKey, tuple[int, int]], controller: Mapping[int, tuple[int, int]]
) -> Mapping[ApiKey, tuple[int, int]]:
    """Without the versions of forwarded requests that the controller does not serve, as in
    Kafka.
    """
    left: dict[ApiKey, tuple[int, int]] = {}
    for key, ours in served.items():
        theirs = controller.get(key, _NONE) if API_VERSIONS[key].forwardable else ours
        lowest, highest = max(ours[0], theirs[0]), min(ours[1], theirs[1])
        if lowest <= highest:
            left[key] = (lowest, highest)
    return left


def _answer(
    node: NodeServices,
    image: MetadataImage,
    version: int,
    served: Mapping[ApiKey, tuple[int, int]],
) -> ApiVersionsResponse:
    levels = dict(image.features)
    if node.quorum is not None:
        levels[KRAFT_VERSION] = node.quorum.kraft_version
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in served.items()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in supported_features(node.config).items()
            # Older Java clients fail on a level of 0 (KAFKA-17492).
            if lowest > 0 or version >= _LEVEL_ZERO_FROM
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(levels.items())
            if level > 0
        ],
    )
