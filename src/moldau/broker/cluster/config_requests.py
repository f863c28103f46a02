"""Checks changes of settings before a broker forwards them to the controller: broker settings,
which only this broker can validate, and logger levels, which concern only this broker.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from moldau.broker.node.loggers import change_levels
from moldau.broker.server.context import BrokerServices, RequestContext
from moldau.config.alter import Change, altered, replaced
from moldau.config.broker import BrokerConfig
from moldau.config.dynamic import DYNAMIC_SETTINGS
from moldau.net.slices import free_in_slices, slices_of
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

_DECIDED_BY_CONTROLLER = {
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
}


class ResourceChange(NamedTuple):
    """One resource of a request of either kind: AlterConfigs or IncrementalAlterConfigs."""

    kind: int
    name: str
    changes: Sequence[Change]
    is_replacement: bool
    """True for AlterConfigs: settings that are not mentioned are removed."""


class ChangeResult(NamedTuple):
    code: int = ErrorCode.NONE
    message: str | None = None


async def local_results(
    ctx: RequestContext, change: Sequence[ResourceChange], *, validate_only: bool
) -> list[ChangeResult | None]:
    """The result for each resource, or None if the controller decides."""
    times = await ctx.work(lambda: Counter((each.kind, each.name) for each in change))

    def result_of(each: ResourceChange) -> ChangeResult | None:
        if times[each.kind, each.name] > 1:
            detail = "Each resource must appear at most once."
            return ChangeResult(ErrorCode.INVALID_REQUEST, detail)
        try:
            return _result(ctx.broker, each, validate_only=validate_only)
        except KafkaError as error:
            return ChangeResult(error.code, error.detail or None)

    results = await slices_of(result_of, change)
    await free_in_slices(times)
    return results


def _result(
    broker: BrokerServices, change: ResourceChange, *, validate_only: bool
) -> ChangeResult | None:
    if change.kind == ConfigResourceType.BROKER_LOGGER and not change.is_replacement:
        node_id = _node_id(change.name)
        if node_id != broker.node_id:
            detail = f"Unexpected node id. Expected {broker.node_id}, but received {node_id}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
        change_levels(change.changes, validate_only=validate_only)
        return ChangeResult()
    if change.kind not in _DECIDED_BY_CONTROLLER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {change.kind}")
    if change.kind == ConfigResourceType.BROKER:
        if change.name:
            _check_is_this_broker(broker, change.name)
        # A stored value that this broker cannot use must not block other changes.
        before = broker.config.layers.own if change.name else broker.config.layers.cluster
        declared = BrokerConfig.declared | DYNAMIC_SETTINGS
        after = (
            replaced(change.changes)
            if change.is_replacement
            else altered(before, change.changes, declared, by_broker=True)
        )
        broker.settings.check_change(change.name, after)
    return None


def _node_id(name: str) -> int:
    if not (name.isascii() and name.removeprefix("-").isdecimal()):
        detail = f"Node id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    return int(name)


def _check_is_this_broker(broker: BrokerServices, name: str) -> None:
    if _node_id(name) != broker.node_id:
        detail = f"Unexpected broker id, expected {broker.node_id}, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
