"""What DescribeConfigs is answered on either listener: the settings of topics, of this node, of
groups and client metrics subscriptions, with where they come from.
"""

from collections.abc import Iterable

from moldau.broker.context import BrokerServices
from moldau.broker.loggers import logger_levels
from moldau.config.describe import (
    Described,
    Source,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_consumer_group,
    describe_topic,
)
from moldau.core.controller.topic_names import name_problem
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def described_configs(
    broker: BrokerServices, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(broker, one, request) for one in request.resources]
    )


def _describe(
    broker: BrokerServices, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        found = _settings_of(broker, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.detail
        return result
    wanted = frozenset(resource.configuration_keys or ())
    result.configs = [_row(one, request) for one in found if not wanted or one.name in wanted]
    return result


def _settings_of(broker: BrokerServices, kind: int, name: str) -> Iterable[Described]:
    match kind:
        case ConfigResourceType.TOPIC:
            problem = name_problem(name)
            if problem is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if broker.image.topic(name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(_stored(broker, kind, name), broker.config)
        case ConfigResourceType.BROKER if not name:
            return describe_broker_defaults(broker.config)
        case ConfigResourceType.BROKER:
            _check_node(broker, name)
            return describe_broker(broker.config)
        case ConfigResourceType.BROKER_LOGGER:
            _check_node(broker, name)
            return [
                Described(logger, level, Source.DYNAMIC_BROKER_LOGGER)
                for logger, level in logger_levels().items()
            ]
        case ConfigResourceType.CLIENT_METRICS if name:
            return describe_client_metrics(_stored(broker, kind, name))
        case ConfigResourceType.GROUP if name:
            return describe_consumer_group(_stored(broker, kind, name), broker.config)
        case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource needs a name")
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} do not exist")


def _stored(broker: BrokerServices, kind: int, name: str) -> dict[str, str]:
    return dict(broker.image.config_of(ConfigResourceType(kind), name))


def _check_node(broker: BrokerServices, name: str) -> None:
    """A broker knows only its own settings."""
    if name != str(broker.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not broker {name!r}"
        )


def _row(one: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=one.name,
        value=one.value,
        read_only=one.is_read_only,
        config_source=one.source,
        is_sensitive=one.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=said.name, value=said.value, source=said.source)
            for said in (one.synonyms if request.include_synonyms else ())
        ],
        config_type=one.kind,
        documentation=one.documentation if request.include_documentation else None,
    )
