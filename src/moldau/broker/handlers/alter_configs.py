"""AlterConfigs: the settings in the request replace all settings of a resource."""

from moldau.broker.cluster.config_requests import ChangeResult, ResourceChange, local_results
from moldau.broker.server.context import RequestContext
from moldau.config.alter import Change
from moldau.net.slices import free_in_slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle_alter_configs(
    ctx: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    changes = await ctx.work(_changes, request)
    results = await local_results(ctx, changes, validate_only=request.validate_only)
    left = [r for r, known in zip(request.resources, results, strict=True) if known is None]
    decided: list[AlterConfigsResourceResponse] = []
    if left:
        rest = AlterConfigsRequest(resources=left, validate_only=request.validate_only)
        answer = await ctx.broker.controller.send(rest, ctx.version)
        assert isinstance(answer, AlterConfigsResponse)
        decided = answer.responses
    response = await ctx.work(_response, request, results, decided)
    await free_in_slices(changes, results, decided)
    return response


def _response(
    request: AlterConfigsRequest,
    results: list[ChangeResult | None],
    decided: list[AlterConfigsResourceResponse],
) -> AlterConfigsResponse:
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
    return AlterConfigsResponse(responses=responses)


def _changes(request: AlterConfigsRequest) -> list[ResourceChange]:
    return [_change(resource) for resource in request.resources]


def _change(resource: AlterConfigsResource) -> ResourceChange:
    changes = [Change(each.name, each.value) for each in resource.configs]
    return ResourceChange(
        resource.resource_type, resource.resource_name, changes, is_replacement=True
    )
