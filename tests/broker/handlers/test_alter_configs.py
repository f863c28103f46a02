import logging
from pathlib import Path
from typing import Any

from broker.controller_bench import Bench, bench

from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages import alter_configs as legacy
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
LOGGER = ConfigResourceType.BROKER_LOGGER


def resource(kind: int, name: str, **values: str) -> AlterConfigsResource:
    configs = [AlterableConfig(name=n.replace("_", "."), value=v) for n, v in values.items()]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


async def alter(node: Bench, *resources: AlterConfigsResource, **fields: Any) -> list[ErrorCode]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), **fields)
    response = await node.serve(request)
    told = [(each.resource_type, each.resource_name) for each in response.responses]
    assert told == [(each.resource_type, each.resource_name) for each in resources]
    return [ErrorCode(each.error_code) for each in response.responses]


async def test_each_resource_gets_its_answer_in_order(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await node.ask(CreateTopicsRequest(topics=[topic]))
        codes = await alter(
            node,
            resource(TOPIC, "missing", retention_ms="5"),
            resource(BROKER, "2", log_cleaner_threads="2"),
            resource(TOPIC, "t", retention_ms="5"),
            resource(99, "what"),
            resource(BROKER, "one", log_cleaner_threads="2"),
            resource(BROKER, "1", log_cleaner_threads="2"),
            resource(BROKER, "", log_retention_ms="7000"),
        )
        assert codes == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]
        assert node.settings.current.log_cleaner_threads == 2
        assert node.settings.current.log_retention_ms == 7000
        node.check()


async def test_brokers_validate_their_own_settings(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        assert await alter(node, resource(BROKER, "1", node_id="7")) == [ErrorCode.INVALID_REQUEST]
        assert await alter(node, resource(BROKER, "", log_retention_ms="x")) == [
            ErrorCode.INVALID_REQUEST
        ]
        assert await alter(node, resource(BROKER, "1", log_cleaner_threads="64")) == [
            ErrorCode.INVALID_REQUEST
        ]
        assert not node.image.config_of(BROKER, "1")


async def test_the_same_resource_twice_is_refused_twice(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        twice = resource(BROKER, "", log_retention_ms="5")
        assert await alter(node, twice, twice) == [ErrorCode.INVALID_REQUEST] * 2
        assert "log.retention.ms" not in node.image.config_of(BROKER, "")


async def test_levels_of_loggers_are_changed_here(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        logger = logging.getLogger("moldau.test.levels")
        requested = resource(LOGGER, "1", moldau_test_levels="DEBUG")
        assert await alter(node, requested, validate_only=True) == [ErrorCode.NONE]
        assert logger.level == logging.NOTSET
        assert await alter(node, requested) == [ErrorCode.NONE]
        assert logger.level == logging.DEBUG
        logger.setLevel(logging.NOTSET)
        assert await alter(node, resource(LOGGER, "2", moldau_test_levels="DEBUG")) == [
            ErrorCode.INVALID_REQUEST
        ]


async def test_the_older_request_replaces(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        for values in (
            {"log.retention.ms": "5", "message.max.bytes": "7"},
            {"message.max.bytes": "8"},
        ):
            configs = [legacy.AlterableConfig(name=n, value=v) for n, v in values.items()]
            requested = legacy.AlterConfigsResource(
                resource_type=BROKER, resource_name="1", configs=configs
            )
            response = await node.serve(legacy.AlterConfigsRequest(resources=[requested]))
            assert [each.error_code for each in response.responses] == [ErrorCode.NONE]
        assert node.image.config_of(BROKER, "1") == {"message.max.bytes": "8"}
        logger = legacy.AlterConfigsResource(resource_type=LOGGER, resource_name="1")
        (told,) = (await node.serve(legacy.AlterConfigsRequest(resources=[logger]))).responses
        assert told.error_code == ErrorCode.INVALID_REQUEST
