"""AlterConfigs and IncrementalAlterConfigs, for topics, brokers, groups and client metrics. Each
resource is changed as a whole or not at all, independently of the request's other resources.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from moldau.config.alter import Change, altered, replaced
from moldau.config.broker import BrokerConfig
from moldau.config.client_metrics import validate_client_metrics
from moldau.config.group import validate_group_configs
from moldau.config.log import LogConfig
from moldau.config.schema import Setting
from moldau.config.topic import validate_topic_configs
from moldau.core.controller.decision_context import (
    RECORDS_PER_REQUEST_MAX,
    DecisionContext,
    too_many_records,
)
from moldau.core.controller.topics.topic_names import name_problem
from moldau.core.controller.topics.topic_settings import MIN_INSYNC_REPLICAS
from moldau.core.decision import Decision
from moldau.core.metadata.image import ConfigResource
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import ClearElrRecord, ConfigRecord
from moldau.protocol.messages import alter_configs as legacy
from moldau.protocol.messages import incremental_alter_configs as incremental
from moldau.protocol.wire.schema import Message

Changes = Mapping[str, str | None]
"""New values by setting; None removes one."""
RequestedResource = TypeVar(
    "RequestedResource", legacy.AlterConfigsResource, incremental.AlterConfigsResource
)
_KINDS = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}
# Lists that APPEND and SUBTRACT apply to: Kafka supports them for these kinds only.
_LISTS_OF: Mapping[ConfigResourceType, Mapping[str, Setting]] = {
    ConfigResourceType.TOPIC: LogConfig.declared,
    ConfigResourceType.BROKER: BrokerConfig.declared,
}


def decide_alter_configs(
    context: DecisionContext, request: legacy.AlterConfigsRequest, _version: int
) -> Decision[Message, legacy.AlterConfigsResponse]:
    """Removes every setting that the request does not name."""
    alteration = _Alteration(context)
    responses = [
        legacy.AlterConfigsResourceResponse(
            error_code=code, error_message=detail, resource_type=kind, resource_name=name
        )
        for kind, name, code, detail in alteration.of_all(request.resources, _replacements)
    ]
    response = legacy.AlterConfigsResponse(responses=responses)
    return Decision(response, [] if request.validate_only else alteration.all_records())


def decide_incremental_alter_configs(
    context: DecisionContext, request: incremental.IncrementalAlterConfigsRequest, _version: int
) -> Decision[Message, incremental.IncrementalAlterConfigsResponse]:
    alteration = _Alteration(context)
    responses = [
        incremental.AlterConfigsResourceResponse(
            error_code=code, error_message=detail, resource_type=kind, resource_name=name
        )
        for kind, name, code, detail in alteration.of_all(request.resources, _operations)
    ]
    response = incremental.IncrementalAlterConfigsResponse(responses=responses)
    return Decision(response, [] if request.validate_only else alteration.all_records())


def topic_config_records(
    context: DecisionContext, topic_name: str, configs: Mapping[str, str]
) -> list[Message]:
    """The records of a new topic's settings. Raises INVALID_CONFIG."""
    if not configs:
        return []
    resource = ConfigResource(ConfigResourceType.TOPIC, topic_name)
    checked = replaced([Change(name, value) for name, value in configs.items()])
    validate_topic_configs(checked, context.config)
    records = _records(resource, configs)
    return [*records, *_clear_eligible(context, records)]


class _ResourceResult(NamedTuple):
    kind: int
    name: str
    code: ErrorCode
    detail: str | None


class _Alteration:
    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        self._records: list[ConfigRecord] = []

    def of_all(
        self,
        resources: list[RequestedResource],
        changes_of: Callable[[RequestedResource, Mapping[str, str], ConfigResource], Changes],
    ) -> list[_ResourceResult]:
        """One result per resource, also for one that the request names twice."""
        times = Counter((each.resource_type, each.resource_name) for each in resources)
        results: dict[tuple[int, str], _ResourceResult] = {}
        for each in resources:
            kind, name = key = (each.resource_type, each.resource_name)
            code, detail = ErrorCode.NONE, ""
            if times[key] > 1 and kind in _KINDS:
                code, detail = ErrorCode.INVALID_REQUEST, "Duplicate resource."
            else:
                try:
                    resource = _resource(kind, name)
                    before = self._context.image.config_of(*resource)
                    self._change(resource, before, changes_of(each, before, resource))
                except KafkaError as error:
                    code, detail = error.code, error.detail
            results[key] = _ResourceResult(kind, name, code, detail or None)
        return list(results.values())

    def all_records(self) -> list[Message]:
        records = [*self._records, *_clear_eligible(self._context, self._records)]
        if len(records) > RECORDS_PER_REQUEST_MAX:
            raise too_many_records()
        return records

    def _change(
        self, resource: ConfigResource, before: Mapping[str, str], changes: Changes
    ) -> None:
        # A broker's settings are written even if unchanged (KAFKA-14136): the record makes the
        # broker reload a changed key store.
        is_broker = resource.kind is ConfigResourceType.BROKER
        changed = {
            name: value for name, value in changes.items() if is_broker or before.get(name) != value
        }
        _check_min_insync_replicas(self._context, resource, changed)
        after = {**before, **changed}
        kept = {name: value for name, value in after.items() if value is not None}
        _validate(self._context, resource, kept)
        _check_exists(self._context, resource)
        self._records += _records(resource, changed)


def _resource(kind: int, name: str) -> ConfigResource:
    if kind not in _KINDS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {kind}.")
    return ConfigResource(ConfigResourceType(kind), name)


def _records(resource: ConfigResource, changes: Changes) -> list[ConfigRecord]:
    return [
        ConfigRecord(
            resource_type=resource.kind, resource_name=resource.name, name=name, value=value
        )
        for name, value in changes.items()
    ]


def _replacements(
    request: legacy.AlterConfigsResource, before: Mapping[str, str], _resource: ConfigResource
) -> Changes:
    configs = replaced([Change(config.name, config.value) for config in request.configs])
    return {**configs, **{name: None for name in before if name not in configs}}


def _operations(
    request: incremental.AlterConfigsResource, before: Mapping[str, str], resource: ConfigResource
) -> Changes:
    changes = [Change(each.name, each.value, each.config_operation) for each in request.configs]
    after = altered(before, changes, _LISTS_OF.get(resource.kind, {}))
    return {change.name: after.get(change.name) for change in changes}


def _validate(
    context: DecisionContext, resource: ConfigResource, configs: Mapping[str, str]
) -> None:
    """Checks the resource's name, and all settings that it will have."""
    match resource.kind:
        case ConfigResourceType.TOPIC:
            _check_topic_name(resource.name)
            validate_topic_configs(configs, context.config)
        case ConfigResourceType.BROKER:
            _check_broker_name(resource.name)
        case ConfigResourceType.GROUP:
            if not resource.name:
                detail = "Default group resources are not allowed."
                raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
            validate_group_configs(configs, context.config)
        case ConfigResourceType.CLIENT_METRICS:
            validate_client_metrics(resource.name, configs)
        case ConfigResourceType.UNKNOWN | ConfigResourceType.BROKER_LOGGER:
            detail = f"Unknown resource type {resource.kind.name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)


def _check_topic_name(name: str) -> None:
    if not name:
        detail = "Default topic resources are not allowed."
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _check_broker_name(name: str) -> None:
    if name and not (name.isascii() and name.isdecimal()):
        detail = (
            "Invalid negative broker ID."
            if name.startswith("-") and name[1:].isdecimal()
            else "Unable to parse broker name as a base 10 number."
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)


def _check_exists(context: DecisionContext, resource: ConfigResource) -> None:
    image = context.image
    if resource.kind is ConfigResourceType.TOPIC and resource.name not in image.topics:
        detail = f"The topic '{resource.name}' does not exist."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
    if resource.kind is ConfigResourceType.BROKER and resource.name:
        node_id = int(resource.name)
        known = {*image.brokers, *image.controllers, context.config.node_id}
        if node_id not in known:
            detail = f"No node with id {node_id} found."
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, detail)


def _check_min_insync_replicas(
    context: DecisionContext, resource: ConfigResource, changes: Changes
) -> None:
    """Eligible leader replicas need a cluster-wide value that is always set."""
    is_broker = resource.kind is ConfigResourceType.BROKER
    if not context.has_eligible_replicas or not is_broker or MIN_INSYNC_REPLICAS not in changes:
        return
    if resource.name:
        detail = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, detail)
    if changes[MIN_INSYNC_REPLICAS] is None:
        detail = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, detail)


def _clear_eligible(context: DecisionContext, records: Iterable[ConfigRecord]) -> list[Message]:
    """Eligibility depends on min.insync.replicas, so a new value clears the eligible replicas."""
    if not context.has_eligible_replicas:
        return []
    return [
        ClearElrRecord(
            topic_name=(
                record.resource_name if record.resource_type == ConfigResourceType.TOPIC else ""
            )
        )
        for record in records
        if record.name == MIN_INSYNC_REPLICAS
    ]
