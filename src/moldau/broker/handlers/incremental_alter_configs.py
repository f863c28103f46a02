"""IncrementalAlterConfigs: settings are set and deleted, and lists are appended to or subtracted
from.
"""

from moldau.broker.cluster.config_requests import ChangeResult, ResourceChange, local_results
from moldau.broker.server.context import RequestContext
from moldau.config.alter import Change
from moldau.net.slices import free_in_slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle_incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    changes = await ctx.work(_changes, request)
    results = await local_results(ctx, changes, validate_only=request.validate_only)
    left = [r for r, known in zip(request.resources, results, strict=True) if known is None]
    decided: list[AlterConfigsResourceResponse] = []
    if left:
        rest = IncrementalAlterConfigsRequest(resources=left, validate_only=request.validate_only)
        answer = await ctx.broker.controller.send(rest, ctx.version)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        decided = answer.responses
    response = await ctx.work(_response, request, results, decided)
    await free_in_slices(changes, results, decided)
    return response


def _response(
    request: IncrementalAlterConfigsRequest,
    results: list[ChangeResult | None],
    decided: list[AlterConfigsResourceResponse],
) -> IncrementalAlterConfigsResponse:
    """`decided`: the controller's results for the resources without a result."""
    by_resource = {
        (each.resource_type, each.resource_name): ChangeResult(each.error_code, each.error_message)
        for each in decided
    }
    responses = []
    for resource, known in zip(request.resources, results, strict=True):
        key = (resource.resource_type, resource.resource_name)
        code, message = known or by_resource.get(key, ChangeResult(ErrorCode.UNKNOWN_SERVER_ERROR))
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


def _changes(request: IncrementalAlterConfigsRequest) -> list[ResourceChange]:
    return [_change(resource) for resource in request.resources]


def _change(resource: AlterConfigsResource) -> ResourceChange:
    changes = [Change(each.name, each.value, each.config_operation) for each in resource.configs]
    return ResourceChange(
        resource.resource_type, resource.resource_name, changes, is_replacement=False
    )
