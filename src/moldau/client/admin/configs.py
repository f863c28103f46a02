"""Settings of topics, brokers and groups: describing and changing them."""

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import UnsupportedError, check, fail
from moldau.frozen import frozen
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.messages.alter_configs import (
    AlterableConfig as ReplacedConfig,
)
from moldau.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)
from moldau.protocol.messages.alter_configs import (
    AlterConfigsResource as ReplacedResource,
)
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_BROKERS_OWN = {ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER}


class ConfigSource(IntEnum):
    """The source of a setting's value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


# The source of settings that are set on a resource itself, by its kind and whether it has a name.
_SOURCE_OF = {
    (ConfigResourceType.TOPIC, True): ConfigSource.DYNAMIC_TOPIC_CONFIG,
    (ConfigResourceType.BROKER, True): ConfigSource.DYNAMIC_BROKER_CONFIG,
    (ConfigResourceType.BROKER, False): ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
}


class ConfigType(IntEnum):
    """The type of a setting's value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Operation(IntEnum):
    """The kind of a `ConfigChange`. APPEND and SUBTRACT are for settings that are lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """Something that has settings: a topic, a broker, a group, the loggers of a broker."""

    kind: ConfigResourceType
    name: str
    """For brokers the id as text; empty for the defaults of all brokers."""


class Synonym(NamedTuple):
    """One of the places that may set a value, in the order in which they are consulted."""

    name: str
    value: str | None
    source: ConfigSource


@frozen
class ConfigEntry:
    """A setting and its value."""

    name: str
    value: str | None
    """None if it is not set, or sensitive."""
    source: ConfigSource
    kind: ConfigType
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    documentation: str | None
    """None unless it was requested."""


class ConfigChange(NamedTuple):
    """A change of one setting."""

    name: str
    operation: Operation
    value: str | None = None
    """None for DELETE, which restores the default."""


def node_of(resource: ConfigResource) -> int | None:
    """The broker to query for a resource: a broker for its own settings, None (any broker) for all
    others.
    """
    return int(resource.name) if resource.kind in _BROKERS_OWN and resource.name else None


async def describe_configs(
    cluster: Cluster,
    resource: ConfigResource,
    *,
    names: Collection[str] | None = None,
    documentation: bool = False,
) -> list[ConfigEntry]:
    """Some settings of a resource, or all if `names` is None, sorted by name."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource.kind,
                resource_name=resource.name,
                configuration_keys=None if names is None else list(names),
            )
        ],
        include_synonyms=True,
        include_documentation=documentation,
    )
    answer = await cluster.send(node_of(resource), request, DescribeConfigsResponse)
    found = []
    for result in answer.results:
        check(result.error_code, result.error_message)
        found += [_entry(row) for row in result.configs]
    return sorted(found, key=lambda entry: entry.name)


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = [
        Synonym(synonym.name, synonym.value, _source(synonym.source)) for synonym in row.synonyms
    ]
    kinds = ConfigType.__members__.values()
    return ConfigEntry(
        row.name,
        row.value,
        _source(row.config_source),
        ConfigType(row.config_type) if row.config_type in kinds else ConfigType.UNKNOWN,
        row.read_only,
        row.is_sensitive,
        tuple(synonyms),
        row.documentation,
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if 0 <= number <= max(ConfigSource) else ConfigSource.UNKNOWN


async def alter_configs(
    cluster: Cluster,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    validate_only: bool = False,
) -> None:
    """Makes all of the changes or none."""
    connection = await cluster.connection(node_of(resource))
    if not connection.serves(ApiKey.INCREMENTAL_ALTER_CONFIGS):
        await _replace_configs(cluster, resource, changes, validate_only=validate_only)
        return
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.kind,
                resource_name=resource.name,
                configs=[
                    AlterableConfig(
                        name=change.name, config_operation=change.operation, value=change.value
                    )
                    for change in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    answer = await connection.send(request, IncrementalAlterConfigsResponse)
    for result in answer.responses:
        if result.error_code:
            fail(result.error_code, result.error_message)


async def _replace_configs(
    cluster: Cluster,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    validate_only: bool,
) -> None:
    """For brokers before 2.3, which replace all settings of a resource: the current ones are sent
    along. A concurrent change of the same resource may be lost, as with Kafka's own old tools.
    """
    source = _SOURCE_OF.get((resource.kind, bool(resource.name)))
    if source is None:
        kind = resource.kind.name.lower().replace("_", " ")
        raise UnsupportedError(f"brokers before 2.3 cannot change settings of a {kind}")
    wanted: dict[str, str | None] = {}
    for entry in await describe_configs(cluster, resource):
        if entry.source is source:
            if entry.is_sensitive:
                raise UnsupportedError(
                    "brokers before 2.3 replace all settings at once, and do not return "
                    f"{entry.name}: it would be lost"
                )
            wanted[entry.name] = entry.value
    for change in changes:
        _apply(change, wanted)
    request = AlterConfigsRequest(
        resources=[
            ReplacedResource(
                resource_type=resource.kind,
                resource_name=resource.name,
                configs=[ReplacedConfig(name=name, value=value) for name, value in wanted.items()],
            )
        ],
        validate_only=validate_only,
    )
    answer = await cluster.send(node_of(resource), request, AlterConfigsResponse)
    for result in answer.responses:
        check(result.error_code, result.error_message)


def _apply(change: ConfigChange, wanted: dict[str, str | None]) -> None:
    match change.operation:
        case Operation.SET:
            wanted[change.name] = change.value
        case Operation.DELETE:
            wanted.pop(change.name, None)
        case _:
            raise UnsupportedError(
                f"brokers before 2.3 cannot append to {change.name}; set the whole list"
            )


async def list_config_resources(cluster: Cluster, kind: ConfigResourceType) -> list[str]:
    """Names of the resources of this kind that have settings."""
    request = ListConfigResourcesRequest(resource_types=[kind])
    answer = await cluster.send(None, request, ListConfigResourcesResponse, oldest=1)
    check(answer.error_code)
    return sorted(row.resource_name for row in answer.config_resources)
