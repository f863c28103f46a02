"""AlterConfigs and IncrementalAlterConfigs, which differ only in their messages and in what happens
to settings that a request does not name.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from moldau.broker.cluster.config_requests import ChangeResult, ResourceChange, local_results
from moldau.broker.server.context import RequestContext
from moldau.config.alter import Change
from moldau.net.slices import free_in_slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages import alter_configs as full
from moldau.protocol.messages import incremental_alter_configs as incremental
from moldau.protocol.wire.schema import Message

ResourceT = TypeVar("ResourceT")
ResponseT = TypeVar(
    "ResponseT", full.AlterConfigsResourceResponse, incremental.AlterConfigsResourceResponse
)


async def handle_alter_configs(
    ctx: RequestContext, request: full.AlterConfigsRequest
) -> full.AlterConfigsResponse:
    """The settings in the request replace all settings of a resource."""

    def request_of(resources: list[full.AlterConfigsResource]) -> Message:
        return full.AlterConfigsRequest(resources=resources, validate_only=request.validate_only)

    changes = await ctx.work(_replacements, request)
    results = await _results(ctx, request.resources, changes, request_of, request.validate_only)
    responses = await ctx.work(_responses, full.AlterConfigsResourceResponse, changes, results)
    await free_in_slices(changes, results)
    return full.AlterConfigsResponse(responses=responses)


async def handle_incremental_alter_configs(
    ctx: RequestContext, request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """Settings are set and deleted, and lists are appended to or subtracted from."""

    def request_of(resources: list[incremental.AlterConfigsResource]) -> Message:
        return incremental.IncrementalAlterConfigsRequest(
            resources=resources, validate_only=request.validate_only
        )

    changes = await ctx.work(_increments, request)
    results = await _results(ctx, request.resources, changes, request_of, request.validate_only)
    each = incremental.AlterConfigsResourceResponse
    responses = await ctx.work(_responses, each, changes, results)
    await free_in_slices(changes, results)
    return incremental.IncrementalAlterConfigsResponse(responses=responses)


def _replacements(request: full.AlterConfigsRequest) -> list[ResourceChange]:
    return [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [Change(each.name, each.value) for each in resource.configs],
            is_replacement=True,
        )
        for resource in request.resources
    ]


def _increments(request: incremental.IncrementalAlterConfigsRequest) -> list[ResourceChange]:
    return [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [Change(each.name, each.value, each.config_operation) for each in resource.configs],
            is_replacement=False,
        )
        for resource in request.resources
    ]


async def _results(
    ctx: RequestContext,
    resources: Sequence[ResourceT],
    changes: Sequence[ResourceChange],
    request_of: Callable[[list[ResourceT]], Message],
    validate_only: bool,
) -> list[ChangeResult]:
    """The controller decides what this broker cannot; `request_of` builds the request for it."""
    known = await local_results(ctx, changes, validate_only=validate_only)
    left = [resource for resource, result in zip(resources, known, strict=True) if result is None]
    if not left:
        return [result for result in known if result is not None]
    answer = await ctx.broker.controller.forward(request_of(left), ctx.version, ctx.peer)
    assert isinstance(
        answer, full.AlterConfigsResponse | incremental.IncrementalAlterConfigsResponse
    )
    results = await ctx.work(_joined, changes, known, answer)
    await free_in_slices(known, answer.responses)
    return results


def _joined(
    changes: Sequence[ResourceChange],
    known: Sequence[ChangeResult | None],
    answer: full.AlterConfigsResponse | incremental.IncrementalAlterConfigsResponse,
) -> list[ChangeResult]:
    decided = {
        (each.resource_type, each.resource_name): ChangeResult(each.error_code, each.error_message)
        for each in answer.responses
    }
    missing = ChangeResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    return [
        result or decided.get((change.kind, change.name), missing)
        for change, result in zip(changes, known, strict=True)
    ]


def _responses(
    response_of: type[ResponseT],
    changes: Sequence[ResourceChange],
    results: Sequence[ChangeResult],
) -> list[ResponseT]:
    return [
        response_of(
            error_code=result.code,
            error_message=result.message,
            resource_type=change.kind,
            resource_name=change.name,
        )
        for change, result in zip(changes, results, strict=True)
    ]
