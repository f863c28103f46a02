"""Partitions follow the metadata, and commit what is appended to them."""

import asyncio
from pathlib import Path

import pytest
from broker.data_node import batch, running, topic_id, values_of

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import BrokerId, LeaderEpoch, Offset


async def test_an_append_is_committed_once_it_is_flushed(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        result = partition.append(batch(b"a", b"b"))
        assert (result.first_offset, result.last_offset) == (0, 1)
        assert partition.log.high_watermark == 0
        await partition.wait_committed(result.last_offset)
        assert partition.log.high_watermark == 2
        assert values_of(partition.log.read(Offset(0), 1000).records) == [b"a", b"b"]


async def test_records_are_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        await partition.wait_committed(partition.append(batch(b"a")).last_offset)
        await node.restart()
        partition = node.replicas.lookup("orders", 0)
        assert values_of(partition.log.read(Offset(0), 1000).records) == [b"a"]


async def test_a_deleted_topic_is_gone_and_its_waiting_appends_fail(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        partition = node.replicas.lookup("orders", 0)
        waiting = partition.wait_committed(partition.append(batch(b"a")).last_offset)
        node.delete_topic()
        with pytest.raises(KafkaError) as failure:
            await waiting
        assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as unknown:
            node.replicas.lookup("orders", 0)
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        names = [path.name for path in node.directory_paths[0].iterdir() if path.is_dir()]
        assert len(names) == 1
        assert names[0].endswith("-delete")


async def test_a_topic_made_again_shows_nothing_of_the_old_one(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", number=1)
        partition = node.replicas.lookup("orders", 0)
        await partition.wait_committed(partition.append(batch(b"old")).last_offset)
        node.delete_topic(1)
        node.create_topic("orders", number=2)
        partition = node.replicas.lookup("orders", 0)
        assert partition.topic_id == topic_id(2)
        assert partition.log.log_end_offset == 0


async def test_a_topic_made_again_while_the_node_was_down_shows_nothing_of_the_old_one(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", number=1)
        partition = node.replicas.lookup("orders", 0)
        await partition.wait_committed(partition.append(batch(b"old")).last_offset)
        await node.stop()
        del node.replicas
        node.delete_topic(1)
        node.create_topic("orders", number=2)
        await node.start()
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 0
        names = {path.name for path in node.directory_paths[0].iterdir() if path.is_dir()}
        assert any(name.endswith("-stray") for name in names)


async def test_leader_epochs_are_announced(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        told: list[tuple[str, int, bool]] = []
        node.create_topic("orders", replicas=(1, 2))
        node.replicas.on_leadership(
            lambda p, leads: told.append((str(p.topic_partition), p.leader_epoch, leads))
        )
        assert told == [("orders-0", 0, True)]
        node.change_partition(leader=2)
        assert told[-1] == ("orders-0", 1, False)
        with pytest.raises(KafkaError) as failure:
            node.replicas.lookup("orders", 0)
        assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        node.change_partition(leader=1)
        assert told[-1] == ("orders-0", 2, True)
        for epoch, code in [
            (1, ErrorCode.FENCED_LEADER_EPOCH),
            (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ]:
            with pytest.raises(KafkaError) as failure:
                node.replicas.lookup("orders", 0, LeaderEpoch(epoch))
            assert failure.value.code is code
        assert node.replicas.lookup("orders", 0, LeaderEpoch(2)).leader_epoch == 2


async def test_appends_wait_for_followers_that_are_in_sync(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", replicas=(1, 2))
        partition = node.replicas.lookup("orders", 0)
        result = partition.append(batch(b"a"))
        waiting = partition.wait_committed(result.last_offset)
        while partition.log.flushed_offset < 1:  # noqa: ASYNC110 - no event is available
            await asyncio.sleep(0)
        assert not waiting.done()
        partition.follower_fetched(BrokerId(2), Offset(1))
        await waiting


async def test_new_logs_go_where_the_fewest_are(tmp_path: Path) -> None:
    async with running(tmp_path, directories=2) as node:
        node.create_topic("orders", partitions=4)
        counts = [len(logs.by_partition) for logs in node.replicas.store.logs]
        assert counts == [2, 2]


async def test_many_logs_are_deleted_a_few_at_a_time_and_make_room_for_the_same_name(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", number=1, partitions=100)
        node.makes_logs_at_once = False
        (logs,) = node.replicas.store.logs
        node.delete_topic(number=1)
        assert not node.replicas.partitions, "for clients they are gone at once"
        for _ in range(100):
            await asyncio.sleep(0)
            if len(logs.by_partition) < 100:
                break
        assert 0 < len(logs.by_partition) < 100
        node.create_topic("orders", number=2, partitions=100)
        await node.replicas.wait_caught_up()
        assert {log.topic_id for log in logs.by_partition.values()} == {topic_id(2)}
        assert len(logs.by_partition) == 100
        # A stop completes what was begun.
        node.delete_topic(number=2)
        assert logs.by_partition
        await node.restart()
        assert not node.replicas.store.logs[0].by_partition
        assert not [path for path in logs.directory.path.iterdir() if "stray" in path.name]
