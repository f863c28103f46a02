"""The elements of large requests are processed in threads or in slices, never at once in the
loop.
"""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.controller_bench import bench
from broker.data_node import running
from broker.group_node import running_groups
from broker.records.test_fetch import BY_NAME, orders, request

from moldau.broker.handlers.fetch import handle_fetch
from moldau.broker.handlers.offset_fetch import handle_offset_fetch
from moldau.core.groups.offset_reading import AT_ONCE_MAX, OffsetReading
from moldau.core.groups.offsets import OffsetStore
from moldau.net import slices
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.fetch import FetchResponse
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

COUNT = 40
FROM_CLIENTS = 3
WITHOUT_GROUPS = 7


class Elements(list[Any]):
    """Records the thread that iterated over it."""

    def __init__(self, elements: Any) -> None:
        super().__init__(elements)
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[Any]:
        self.threads.add(threading.get_ident())
        return super().__iter__()

    @property
    def was_only_seen_by_threads(self) -> bool:
        return bool(self.threads) and threading.get_ident() not in self.threads


async def test_names_of_topics(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        names = [f"not a name {number}" for number in range(COUNT)]
        topics = Elements(MetadataRequestTopic(name=name) for name in names)
        sent = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        answer = await node.serve(sent, 8, is_large=True)
        assert topics.was_only_seen_by_threads
        assert [each.name for each in answer.topics] == names
        invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
        assert {each.error_code for each in answer.topics} == {invalid}


async def test_names_that_no_topic_may_have_are_found_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # Every check finds the slice over.
    async with bench(tmp_path / "data") as node:
        creating = asyncio.ensure_future(
            node.topic_creation.ensure(f"not a name {number}" for number in range(COUNT))
        )
        await asyncio.sleep(0)
        assert not creating.done()
        assert set((await creating).values()) == {ErrorCode.INVALID_TOPIC_EXCEPTION}


@pytest.mark.parametrize("version", [FROM_CLIENTS, 5])
async def test_partitions_of_a_transaction(tmp_path: Path, version: int) -> None:
    async with bench(tmp_path / "data") as node:
        partitions = Elements(range(COUNT))
        topics = [AddPartitionsToTxnTopic(name="unknown", partitions=partitions)]
        sent = AddPartitionsToTxnRequest(v3_and_below_topics=topics)
        if version > FROM_CLIENTS:
            sent = AddPartitionsToTxnRequest(
                transactions=[AddPartitionsToTxnTransaction(topics=topics)]
            )
        answer = await node.serve(sent, version, is_large=True)
        assert partitions.was_only_seen_by_threads
        topics_answered = answer.results_by_topic_v3_and_below
        if version > FROM_CLIENTS:
            topics_answered = answer.results_by_transaction[0].topic_results
        assert [each.partition_index for each in topics_answered[0].results_by_partition] == list(
            partitions
        )


async def test_long_texts_of_few_settings(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        new = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await node.ask(CreateTopicsRequest(topics=[new]))
        name = "leader.replication.throttled.replicas"
        value = ",".join(f"{number}:1" for number in range(4_000))
        configs = [AlterableConfig(name=name, value=value)]
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name="t", configs=configs
        )
        resources = Elements([resource])
        answer = await node.ask(IncrementalAlterConfigsRequest(resources=resources))
        assert resources.was_only_seen_by_threads
        assert [each.error_code for each in answer.responses] == [ErrorCode.NONE]
        assert node.image.config_of(ConfigResourceType.TOPIC, "t") == {name: value}


async def test_topics_of_an_offset_fetch(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        topics = Elements(OffsetFetchRequestTopic(name=f"t-{each}") for each in range(COUNT))
        sent = OffsetFetchRequest(group_id="g", topics=topics)
        context = node.context(sent, WITHOUT_GROUPS)
        context.is_large = True
        answer = await handle_offset_fetch(context, sent)
        assert topics.was_only_seen_by_threads
        assert [each.name for each in answer.topics] == [each.name for each in topics]


def test_topics_without_partitions_are_read_one_by_one() -> None:
    topics = [OffsetFetchRequestTopics(name=f"t-{each}") for each in range(AT_ONCE_MAX + 1)]
    sent = OffsetFetchRequestGroup(group_id="g", topics=topics)
    reading = OffsetReading(OffsetStore(), sent, requires_stable=False)
    assert reading.size > AT_ONCE_MAX
    parts = list(reading.parts())
    assert len(parts) == len(topics)
    for part in parts:
        reading.add(part)
    assert len(reading.response.topics) == len(topics)


async def test_partitions_of_a_fetch(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=COUNT)
        topic = orders(0, *range(COUNT))
        topic.partitions = Elements(topic.partitions)
        sent = request(topic, session_epoch=0)
        context = node.context(sent, BY_NAME)
        context.is_large = True
        outcome = handle_fetch(context, sent)
        assert not isinstance(outcome, FetchResponse)
        answer = await outcome
        assert isinstance(topic.partitions, Elements)
        assert topic.partitions.was_only_seen_by_threads
        assert answer.session_id > 0
        assert len(answer.responses[0].partitions) == COUNT
