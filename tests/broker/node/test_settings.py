"""The settings in force follow the metadata log, and DescribeConfigs reports them."""

import logging
from typing import Any, cast

import pytest
from config.nodes import COMBINED

from moldau.broker.handlers.describe_configs import handle_describe_configs
from moldau.broker.handlers.list_config_resources import handle_list_config_resources
from moldau.broker.metrics.counters import Metrics
from moldau.broker.node.loggers import change_levels, logger_levels
from moldau.broker.node.settings import Settings
from moldau.broker.server.context import BrokerServices, Peer, RequestContext
from moldau.broker.server.memory_budget import MemoryBudget
from moldau.config.alter import Change, Operation
from moldau.config.broker import BrokerConfig
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import ConfigRecord, RegisterBrokerRecord, TopicRecord
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from moldau.protocol.messages.list_config_resources import ListConfigResourcesRequest
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId, LeaderEpoch, Offset, Uuid

BROKER, TOPIC = ConfigResourceType.BROKER, ConfigResourceType.TOPIC


class Node:
    """Settings over a metadata log that the test writes."""

    def __init__(self, **settings: str) -> None:
        changes = {name.replace("__", "."): text for name, text in settings.items()}
        self.settings = Settings(BrokerConfig.parse(COMBINED | changes))
        self.image: MetadataImage = EMPTY_IMAGE

    def commit(self, *records: Message) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.finish(Offset(self.image.offset + len(records)), LeaderEpoch(1), 0)
        self.settings.apply(delta, self.image)

    def put(self, kind: ConfigResourceType, resource: str, name: str, value: str | None) -> None:
        self.commit(
            ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        )

    def context(self, api_key: ApiKey, version: int) -> RequestContext:
        absent = cast("Any", None)
        services = BrokerServices(
            node_id=BrokerId(1),
            cluster_id="cluster",
            clock=absent,
            settings=self.settings,
            metadata=cast("Any", self),
            controller=absent,
            replicas=absent,
            groups=absent,
            producer_ids=absent,
            transactions=absent,
            verification=absent,
            fetch_sessions=absent,
            topic_creation=absent,
            deadlines=absent,
            workers=absent,
            metrics=Metrics(),
            budget=MemoryBudget(lambda: 1 << 30),
        )
        peer = Peer(1, "PLAINTEXT", "127.0.0.1", 5)
        return RequestContext(services, peer, api_key, version, "tests", {})

    def describe(self, kind: int, name: str, *keys: str, **options: bool) -> DescribeConfigsResult:
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        request = DescribeConfigsRequest(resources=[resource], **options)
        response: Any = handle_describe_configs(self.context(ApiKey.DESCRIBE_CONFIGS, 4), request)
        result: DescribeConfigsResult = response.results[0]
        return result

    def resources(self, *kinds: int, version: int = 1) -> tuple[int, set[tuple[int, str]]]:
        response = handle_list_config_resources(
            self.context(ApiKey.LIST_CONFIG_RESOURCES, version),
            ListConfigResourcesRequest(resource_types=list(kinds)),
        )
        found = {(one.resource_type, one.resource_name) for one in response.config_resources}
        return response.error_code, found


def test_changes_take_effect_and_are_announced() -> None:
    node = Node(message__max__bytes="100")
    announced: list[tuple[int, int]] = []
    node.settings.subscribe(
        lambda before, after: announced.append((before.message_max_bytes, after.message_max_bytes))
    )
    node.put(BROKER, "", "message.max.bytes", "200")
    node.put(BROKER, "1", "message.max.bytes", "300")
    node.put(BROKER, "2", "message.max.bytes", "400")
    node.put(TOPIC, "t", "max.message.bytes", "500")
    assert node.settings.current.message_max_bytes == 300
    node.put(BROKER, "1", "message.max.bytes", None)
    assert node.settings.current.message_max_bytes == 200
    node.put(BROKER, "", "message.max.bytes", None)
    assert node.settings.current.message_max_bytes == 100
    assert announced == [(100, 200), (200, 300), (300, 200), (200, 100)]


def test_unusable_settings_are_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.put(BROKER, "", "num.partitions", "9")
    node.put(BROKER, "", "message.max.bytes", "lots")
    node.put(BROKER, "", "log.cleaner.backoff.ms", "5")
    assert node.settings.current.num_partitions == 1
    assert node.settings.current.message_max_bytes == 1_048_588
    assert node.settings.current.log_cleaner_backoff_ms == 5
    assert "Cannot update these configs dynamically: [num.partitions]" in caplog.text
    assert "Invalid value lots for configuration message.max.bytes" in caplog.text


def test_contradicting_settings_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    node.put(BROKER, "", "message.max.bytes", "7")
    node.put(BROKER, "", "log.cleaner.dedupe.buffer.size", "1")
    assert node.settings.current.message_max_bytes == 7
    assert node.settings.current.log_cleaner_dedupe_buffer_size == 128 << 20
    assert "log.cleaner.dedupe.buffer.size must be at least 1MB" in caplog.text


def test_a_change_is_checked_before_it_is_made() -> None:
    node = Node()
    node.settings.check_change("", {"message.max.bytes": "5"})
    with pytest.raises(KafkaError, match="broker id must be specified"):
        node.settings.check_change("", {"listeners": "PLAINTEXT://h:1"})
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        node.settings.check_change("1", {"num.partitions": "1"})


def test_a_broker_describes_its_own_settings() -> None:
    node = Node()
    node.put(BROKER, "1", "message.max.bytes", "300")
    result = node.describe(
        BROKER, "1", "message.max.bytes", include_synonyms=True, include_documentation=True
    )
    (row,) = result.configs
    assert (row.value, row.config_source, row.config_type) == ("300", 2, 3)
    assert [said.source for said in row.synonyms] == [2, 5]
    assert row.documentation
    assert len(node.describe(BROKER, "1").configs) > 300
    (row,) = node.describe(BROKER, "1", "message.max.bytes").configs
    assert row.synonyms == []
    assert row.documentation is None


def test_topics_groups_and_all_brokers_are_described() -> None:
    node = Node()
    node.commit(TopicRecord(name="t", topic_id=Uuid(bytes(15) + b"\x01")))
    node.put(TOPIC, "t", "retention.ms", "5")
    (row,) = node.describe(TOPIC, "t", "retention.ms").configs
    assert (row.value, row.config_source) == ("5", 1)
    assert node.describe(BROKER, "").configs == []
    assert len(node.describe(ConfigResourceType.GROUP, "g").configs) == 17
    assert len(node.describe(ConfigResourceType.CLIENT_METRICS, "m").configs) == 3


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_cannot_be_described_have_their_own_error(
    kind: int, name: str, code: ErrorCode
) -> None:
    result = Node().describe(kind, name)
    assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
    assert result.configs == []


def test_loggers_are_described_and_changed() -> None:
    logger = logging.getLogger("moldau.tests.described")
    logger.setLevel(logging.WARNING)
    rows = {row.name: row for row in Node().describe(ConfigResourceType.BROKER_LOGGER, "1").configs}
    assert rows["moldau.tests.described"].value == "WARN"
    assert rows["moldau.tests.described"].config_source == 6
    assert "root" in rows
    change_levels([Change("moldau.tests.described", "debug")], validate_only=True)
    assert logger.level == logging.WARNING
    change_levels([Change("moldau.tests.described", "debug")], validate_only=False)
    assert logger_levels()["moldau.tests.described"] == "DEBUG"
    change_levels([Change("moldau.tests.described", None, Operation.DELETE)], validate_only=False)
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (Change("moldau.no.such.logger", "INFO"), ErrorCode.INVALID_CONFIG),
        (Change("root", "LOUD"), ErrorCode.INVALID_CONFIG),
        (Change("root", None, Operation.DELETE), ErrorCode.INVALID_REQUEST),
        (Change("root", "INFO", Operation.APPEND), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_change_of_a_level_is_refused(change: Change, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        change_levels([change], validate_only=False)
    assert refused.value.code is code


def test_resources_with_settings_are_listed() -> None:
    node = Node()
    node.commit(
        TopicRecord(name="t", topic_id=Uuid(bytes(15) + b"\x01")),
        RegisterBrokerRecord(broker_id=1, fenced=False),
        RegisterBrokerRecord(broker_id=2, fenced=True),
    )
    node.put(ConfigResourceType.GROUP, "g", "consumer.session.timeout.ms", "50000")
    node.put(ConfigResourceType.CLIENT_METRICS, "m", "interval.ms", "1000")
    assert node.resources() == (
        0,
        {
            (ConfigResourceType.TOPIC, "t"),
            (ConfigResourceType.BROKER, "1"),
            (ConfigResourceType.BROKER_LOGGER, "1"),
            (ConfigResourceType.GROUP, "g"),
            (ConfigResourceType.CLIENT_METRICS, "m"),
        },
    )
    assert node.resources(ConfigResourceType.TOPIC) == (0, {(ConfigResourceType.TOPIC, "t")})
    assert node.resources(version=0) == (0, {(ConfigResourceType.CLIENT_METRICS, "m")})
    assert node.resources(77) == (ErrorCode.UNSUPPORTED_VERSION, set())
