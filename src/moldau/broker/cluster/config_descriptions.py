"""Answers DescribeConfigs on both kinds of listeners: the settings of topics, of this node, of
groups and of client metrics subscriptions, with the source of each value.

A resource that is named several times is answered once (Kafka answers it every time), and resources
with the same settings share one description.
"""

from collections.abc import Awaitable, Hashable, Iterable, Mapping
from typing import NamedTuple

from moldau.broker.node.loggers import logger_levels
from moldau.broker.server.context import NodeServices
from moldau.broker.server.error_responses import INVALID_REQUEST_MESSAGE
from moldau.config.describe import (
    Described,
    Source,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_consumer_group,
    describe_topic,
)
from moldau.core.controller.topics.topic_names import name_problem
from moldau.core.metadata.image import MetadataImage
from moldau.net.slices import once_in_slices
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

_STORED = {
    ConfigResourceType.TOPIC,
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
}
"""Resources whose settings are only the stored values for the name, and defaults."""
ANSWER_BYTES_MAX = 32 << 20
_FIXED_BYTES = 16
"""Size of a row or a synonym without its texts."""
# Kafka's words.
_NAMELESS: dict[int, str] = {
    ConfigResourceType.BROKER_LOGGER: "Broker id must not be empty",
    ConfigResourceType.CLIENT_METRICS: "Client metrics subscription name must not be empty",
    ConfigResourceType.GROUP: "Group name must not be empty",
}


def described_configs(
    node: NodeServices, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    description = _Description(node, request)
    return once_in_slices(
        description.of,
        request.resources,
        lambda each: (each.resource_type, each.resource_name, _keys(each.configuration_keys)),
        lambda rows: DescribeConfigsResponse(results=rows),
    )


def _keys(names: list[str] | None) -> frozenset[str]:
    """An empty list selects all settings."""
    return frozenset(names or ())


class _Rows(NamedTuple):
    rows: list[DescribeConfigsResourceResult]
    size_bytes: int


class _Description:
    """The description for one request. It uses one image and one configuration, even if they change
    between two slices of the work.
    """

    def __init__(self, node: NodeServices, request: DescribeConfigsRequest) -> None:
        self._node_id = node.node_id
        self._image = node.image
        self._config = node.config
        self._request = request
        self._shared: dict[Hashable, _Rows] = {}
        self._size_bytes = 0

    def of(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        kind, name = resource.resource_type, resource.resource_name
        result = DescribeConfigsResult(resource_type=kind, resource_name=name)
        try:
            rows = self._settings_of(kind, name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.detail
            return result
        wanted = _keys(resource.configuration_keys)
        if wanted:
            result.configs = [row for row in rows.rows if row.name in wanted]
        else:
            result.configs = rows.rows
            self._size_bytes += rows.size_bytes
        if self._size_bytes > ANSWER_BYTES_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The answer would be larger than {ANSWER_BYTES_MAX} bytes: request fewer at once.",
            )
        return result

    def _settings_of(self, kind: int, name: str) -> _Rows:
        """Shared by all resources that have the same settings."""
        stored: dict[str, str] = {}
        if kind in _STORED and name:
            _check_topic(self._image, kind, name)
            stored = dict(self._image.config_of(ConfigResourceType(kind), name))
            key: Hashable = (kind, frozenset(stored.items()))
        else:
            key = (kind, name)
        known = self._shared.get(key)
        if known is None:
            known = self._shared[key] = self._rows(self._described_settings(kind, name, stored))
        return known

    def _rows(self, settings: Iterable[Described]) -> _Rows:
        rows = [_row(setting, self._request) for setting in settings]
        return _Rows(rows, sum(map(_row_bytes, rows)))

    def _described_settings(
        self, kind: int, name: str, stored: Mapping[str, str]
    ) -> Iterable[Described]:
        if not name and kind in _NAMELESS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, _NAMELESS[kind])
        match kind:
            case ConfigResourceType.TOPIC:
                _check_topic(self._image, kind, name)
                return describe_topic(stored, self._config)
            case ConfigResourceType.BROKER if not name:
                return describe_broker_defaults(self._config)
            case ConfigResourceType.BROKER:
                self._check_node(name, f"expected {self._node_id} or empty string,")
                return describe_broker(self._config)
            case ConfigResourceType.BROKER_LOGGER:
                self._check_node(name, f"expected {self._node_id}")
                return [
                    Described(logger, level, Source.DYNAMIC_BROKER_LOGGER)
                    for logger, level in logger_levels().items()
                ]
            case ConfigResourceType.CLIENT_METRICS:
                return describe_client_metrics(stored)
            case ConfigResourceType.GROUP:
                return describe_consumer_group(stored, self._config)
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, INVALID_REQUEST_MESSAGE)

    def _check_node(self, name: str, expected: str) -> None:
        """A broker knows only its own settings."""
        if not (name.isascii() and name.removeprefix("-").isdecimal()):
            detail = f"Broker id must be an integer, but it is: {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
        if int(name) != self._node_id:
            detail = f"Unexpected broker id, {expected} but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)


def _check_topic(image: MetadataImage, kind: int, name: str) -> None:
    if kind != ConfigResourceType.TOPIC:
        return
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if image.topic(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _row_bytes(row: DescribeConfigsResourceResult) -> int:
    """Approximate size in a response."""
    return (
        _FIXED_BYTES
        + len(row.name)
        + len(row.value or "")
        + len(row.documentation or "")
        + sum(
            _FIXED_BYTES + len(synonym.name) + len(synonym.value or "") for synonym in row.synonyms
        )
    )


def _row(setting: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=setting.is_read_only,
        config_source=setting.source,
        is_sensitive=setting.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (setting.synonyms if request.include_synonyms else ())
        ],
        config_type=setting.kind,
        documentation=setting.documentation if request.include_documentation else None,
    )
