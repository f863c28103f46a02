"""An error in one part of a node that follows the metadata stays there, and is counted: the same
record reaches every node, and each of them again at every start.
"""

import asyncio
from pathlib import Path

import pytest
from broker.data_node import running as running_data_node
from broker.metadata_node import config_for
from broker.quorum.quorum_cluster import Member, running_quorum
from support.waiting import take_turns

from moldau.broker.node.settings import Settings
from moldau.broker.replicas.partition import Partition
from moldau.config.broker import BrokerConfig
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.protocol.log_records import ConfigRecord
from moldau.types import LeaderEpoch, Offset, TopicPartition

BAD = "bad"
BROKER_KIND = 4


def fails_at_bad_value(delta: MetadataDelta, image: MetadataImage) -> None:
    if delta.changed_configs and BAD in str(image.configs.values()):
        raise ZeroDivisionError


async def test_a_record_that_a_part_of_every_node_cannot_take_stops_none() -> None:
    async with running_quorum() as cluster:
        seen: dict[int, int] = {}

        def subscribe(member: Member) -> None:
            def others(_delta: MetadataDelta, image: MetadataImage) -> None:
                seen[member.id] = image.offset

            member.feed.subscribe(fails_at_bad_value)
            member.feed.subscribe(others)

        for member in cluster.members.values():
            subscribe(member)
        leader = await cluster.commit("name", BAD)
        await cluster.wait_until_equal()
        assert [each.feed.failures for each in cluster.members.values()] == [1, 1, 1]
        assert [each.failures for each in cluster.members.values()] == [[], [], []]
        # The next leader, too.
        await cluster.kill(leader.id)
        other = await cluster.commit("name", "good")
        await cluster.wait_until_equal()
        assert [each.feed.failures for each in cluster.members.values()] == [1, 1]
        assert {seen[each] for each in cluster.members} == {other.quorum.last_offset}
        returned = await cluster.start(leader.id)
        subscribe(returned)
        await cluster.wait_until_equal()
        assert {each.values["name"] for each in cluster.members.values()} == {"good"}


async def test_a_condition_that_fails_concerns_only_the_task_that_waits_for_it() -> None:
    def fails(image: MetadataImage) -> bool:
        return image.offset >= 0 and image.offset // 0 > 0

    async with running_quorum() as cluster:
        leader = await cluster.wait_for_leader()
        waits = [
            asyncio.ensure_future(leader.feed.wait_until(condition))
            for condition in (
                lambda image: "broken" in str(image.configs) and fails(image),
                lambda image: "broken" in str(image.configs),
            )
        ]
        await take_turns()
        await leader.commit("broken")
        broken, sound = await asyncio.gather(*waits, return_exceptions=True)
        assert isinstance(broken, ZeroDivisionError)
        assert sound is None
        assert leader.failures == []
        await leader.commit("later")


async def test_a_listener_to_leaderships_that_fails_keeps_neither_logs_nor_others_back(
    tmp_path: Path,
) -> None:
    """Neither when the metadata change, nor when the logs of new partitions are on the disk."""
    begun: list[TopicPartition] = []

    def fail(partition: Partition, _leads: bool) -> None:
        raise ZeroDivisionError(str(partition))

    async with running_data_node(tmp_path) as node:
        node.replicas.on_leadership(fail)
        node.replicas.on_leadership(lambda each, _leads: begun.append(each.topic_partition))
        node.makes_logs_at_once = False
        node.create_topic("wide", partitions=50)
        await node.replicas.wait_caught_up()
        assert {each.partition for each in begun} == set(range(50))
        assert all(node.replicas.lookup("wide", number).has_log for number in range(50))
        assert node.replicas.reports.failures["metadata"] > 0
        begun.clear()
        with pytest.raises(ZeroDivisionError):
            # The feed counts it.
            node.change_partition(index=0, leader=1, isr=[1])
        assert begun == [TopicPartition("wide", 0)]


def test_a_listener_to_settings_that_fails_keeps_no_other_from_following(tmp_path: Path) -> None:
    heard: list[int] = []

    def fail(_before: BrokerConfig, _after: BrokerConfig) -> None:
        raise ZeroDivisionError

    settings = Settings(config_for(tmp_path))
    settings.subscribe(fail)
    settings.subscribe(lambda _before, after: heard.append(after.message_max_bytes))
    record = ConfigRecord(
        resource_type=BROKER_KIND, resource_name="", name="message.max.bytes", value="12345"
    )
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(record)
    with pytest.raises(ZeroDivisionError):
        settings.apply(delta, delta.finish(Offset(0), LeaderEpoch(1), 0))
    assert heard == [12345]
