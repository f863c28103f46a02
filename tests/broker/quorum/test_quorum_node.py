"""A quorum of one: committed records stay, in order, and every listener receives them."""

import asyncio
import errno
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from broker.metadata_node import (
    CLUSTER,
    bootstrapped,
    config,
    config_for,
    formatted,
    running,
    topic,
)
from storage.samples import CLUSTER_ID, expected_topics, unpack
from support.proofs import proves
from support.waiting import take_turns

from moldau.broker.quorum.listener import QuorumListener
from moldau.broker.quorum.log_start import MetadataLogError
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.loader import CommittedBatch
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.rpc import FetchRequest, FetchResponse, VoteRequest, VoteResponse
from moldau.core.quorum.voters import VoterKey
from moldau.net.clock import Clock
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.log_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RemoveTopicRecord,
)
from moldau.protocol.records.batches import iterate_batches
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.disk.reserve import Reserve
from moldau.testing.simulated_disk import Effect, SimulatedDisk
from moldau.types import BrokerId, LeaderEpoch, Offset, Uuid

METADATA = "__cluster_metadata-0"
ANYWHERE = Path("/data")


def simulated(path: Path = ANYWHERE) -> SimulatedDisk:
    disk = SimulatedDisk()
    formatted(path, disk)
    return disk


async def test_a_new_node_leads_epoch_one_and_every_start_another(tmp_path: Path) -> None:
    formatted(tmp_path)
    for epoch in (1, 2, 3):
        async with running(tmp_path) as node:
            assert node.quorum.is_leader
            assert node.quorum.leader_epoch == epoch
            assert node.quorum.leader_id == 1
            stored = (tmp_path / METADATA / "quorum-state").read_text()
            assert f'"leaderId":1,"leaderEpoch":{epoch},"votedId":-1' in stored
    assert (tmp_path / METADATA / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    )


async def test_commits_survive_a_restart(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await bootstrapped(node)
        offset = await node.commit(topic("orders"), config("retention.ms", "1"))
        before = node.image
        assert before.offset == offset == node.quorum.last_offset
        assert before.features["metadata.version"] == 30
        assert before.config_of(ConfigResourceType.TOPIC, "orders") == {"retention.ms": "1"}
    async with running(tmp_path) as node:
        assert node.image.offset == before.offset + 1  # the new leader's record
        assert replace(
            node.image, offset=Offset(0), epoch=LeaderEpoch(0), timestamp_ms=0
        ) == replace(before, offset=Offset(0), epoch=LeaderEpoch(0), timestamp_ms=0)


async def test_listeners_receive_everything_in_order(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await bootstrapped(node)
        await node.commit(topic("a"))
        listener = node.listener
        events = ["batch 0-2", "end", "leader 1 epoch 1", "batch 3-8", "end", "batch 9-9", "end"]
        assert listener.events == events
        assert listener.batches[-1] == CommittedBatch(
            Offset(9), Offset(9), LeaderEpoch(1), listener.batches[-1].append_time_ms, (topic("a"),)
        )
    assert listener.events == [*events, "leader -1 epoch 1"]
    async with running(tmp_path) as node:
        # Those from the disk first; a leader is announced when all records before its epoch are
        # known.
        assert node.listener.events == [
            "batch 0-2", "batch 3-8", "batch 9-9", "batch 10-10", "end", "leader 1 epoch 2",
        ]  # fmt: skip
        assert node.listener.batches[2].records == [topic("a")]


async def test_the_image_includes_the_awaited_record(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        seen: list[tuple[int, set[str]]] = []
        node.feed.subscribe(lambda delta, image: seen.append((image.offset, delta.changed_topics)))
        seen.clear()  # a late subscriber gets the current state at once
        offset = node.quorum.append([topic("a")], 1)
        waiting = asyncio.ensure_future(node.feed.wait_for(offset))
        await node.quorum.wait_committed(offset)
        assert "a" in node.image.topics
        assert seen == [(offset, {"a"})]
        await waiting
        await node.feed.wait_for(0)


async def test_a_late_subscriber_gets_the_current_state(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await node.commit(topic("a"))
        seen = []
        node.feed.subscribe(lambda delta, image: seen.append((delta.changed_topics, image)))
        assert seen == [({"a"}, node.image)]


async def test_one_sync_covers_many_appends() -> None:
    disk = simulated()
    async with running(ANYWHERE, filesystem=disk) as node:
        syncs = sum(effect.kind == "sync" for effect in disk.trace)
        for number in range(200):
            node.quorum.append([topic(f"t{number}")], number)
        await node.quorum.wait_committed(node.quorum.last_offset)
        assert len(node.image.topics) == 200
        assert [batch.append_time_ms for batch in node.listener.batches[-200:]] == list(range(200))
        assert sum(effect.kind == "sync" for effect in disk.trace) - syncs < 20


@proves("controller.quorum.append.linger.ms")
@pytest.mark.parametrize("linger_ms", [100_000, None])
async def test_under_load_syncs_wait_for_the_linger_time(linger_ms: int | None) -> None:
    # The interval of the other logs does not matter.
    settings = {"moldau.flush.interval.ms": "200000"}
    if linger_ms is not None:
        settings["controller.quorum.append.linger.ms"] = str(linger_ms)
    async with running(ANYWHERE, settings, filesystem=simulated()) as node:
        offsets: list[int] = []

        def append_another(delta: MetadataDelta, _image: MetadataImage) -> None:
            if "a" in delta.changed_topics:
                offsets.append(node.quorum.append([topic("b")], 1))

        node.feed.subscribe(append_another)
        # The second is appended while the round of the first is not over.
        await node.commit(topic("a"))
        done = asyncio.ensure_future(node.quorum.wait_committed(offsets[0]))
        if linger_ms is not None:
            node.clock.advance(linger_ms - 2_000)
            await take_turns()
            assert not done.done()
        # The default is 25 ms.
        node.clock.advance(3_000)
        await done


async def test_a_record_is_delivered_only_once_it_is_on_the_disk() -> None:
    disk = simulated()
    async with running(ANYWHERE, filesystem=disk) as node:
        offset = node.quorum.append([topic("a")], 1)
        assert node.quorum.high_watermark <= offset
        assert "a" not in node.image.topics
        await node.quorum.wait_committed(offset)
        assert not any(change.path.endswith(".log") for change in disk.unsynced())


async def test_an_append_is_one_batch(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await node.commit(*[NoOpRecord()] * 3000)
        assert node.listener.batches[-1].last_offset - node.listener.batches[-1].base_offset == 2999


async def test_an_oversized_batch_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        end = node.quorum.last_offset
        with pytest.raises(KafkaError, match="bytes in one batch"):
            node.quorum.append([config("n", "x" * 30_000)] * 300, 1)
        assert node.quorum.last_offset == end
        await node.commit(topic("a"))


@proves("internal.metadata.max.batch.size.in.bytes")
async def test_the_size_limit_of_a_batch_is_a_setting(tmp_path: Path) -> None:
    formatted(tmp_path)
    settings = {"internal.metadata.max.batch.size.in.bytes": "1000"}
    async with running(tmp_path, settings) as node:
        with pytest.raises(KafkaError, match="1000 are allowed"):
            node.quorum.append([config("n", "x" * 1000)], 1)
        await node.commit(config("n", "x" * 500))


async def test_records_are_written_by_the_level_that_is_in_force(tmp_path: Path) -> None:
    """A broker registered at an old level has no room for directories."""
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await node.commit(FeatureLevelRecord(name="metadata.version", feature_level=7))
        assert node.image.metadata_version == 7
    async with running(tmp_path) as node:
        await node.commit(FeatureLevelRecord(name="metadata.version", feature_level=30))
        await node.commit(topic("a"))
        assert node.image.metadata_version == 30


async def test_appends_before_the_start_or_after_the_stop_are_refused(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        quorum = node.quorum
    assert not quorum.is_leader
    with pytest.raises(KafkaError) as caught:
        quorum.append([NoOpRecord()], 1)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError):
        await quorum.wait_committed(1_000)
    await quorum.stop()


async def test_stopping_commits_what_was_appended(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        waiting = asyncio.ensure_future(
            node.quorum.wait_committed(node.quorum.append([topic("a")], 1))
        )
    await waiting
    async with running(tmp_path) as node:
        assert "a" in node.image.topics


async def test_transactions_show_when_they_end(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await node.commit(BeginTransactionRecord(name="x"), topic("a"))
        assert node.image.topics == {}
    async with running(tmp_path) as node:
        assert node.image.topics == {}
        await node.commit(topic("b"), EndTransactionRecord())
        assert node.image.topics.keys() == {"a", "b"}


@proves("metadata.max.idle.interval.ms")
async def test_idle_nodes_write_no_ops_after_the_bootstrap(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path, {"metadata.max.idle.interval.ms": "10000"}) as node:
        committed = len(node.listener.batches)
        node.clock.advance(20_000)
        await asyncio.sleep(0)
        await bootstrapped(node)
        node.clock.advance(9_000)
        for _ in range(50):
            await asyncio.sleep(0)
        await node.quorum.wait_committed(node.quorum.last_offset)
        assert len(node.listener.batches) == committed + 1
        node.clock.advance(2_000)
        await node.feed.wait_for(node.image.offset + 1)
        assert node.listener.batches[-1].records == [NoOpRecord()]


async def test_the_status_is_what_describe_quorum_returns(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await bootstrapped(node)
        status = node.quorum.describe()
        assert (status.leader_id, status.leader_epoch) == (1, 1)
        assert status.high_watermark == node.quorum.high_watermark == node.quorum.last_offset + 1
        (voter,) = status.voters
        assert voter.key == (1, node.directory.meta.directory_id)
        assert voter.log_end_offset == status.high_watermark
        assert status.endpoints[0].endpoints[0].listener == "CONTROLLER"


async def test_other_nodes_get_answers_and_records(tmp_path: Path) -> None:
    formatted(tmp_path)
    voter = VoterKey(BrokerId(9), Uuid(bytes([9]) * 16))
    async with running(tmp_path) as node:
        await node.commit(topic("a"))
        end = node.quorum.log.end
        assert node.quorum.leader_address == ("127.0.0.1", 0)
        asked = VoteRequest(epoch=LeaderEpoch(1), candidate=voter, last=end, is_pre_vote=True)
        vote = await node.quorum.answer(asked)
        assert isinstance(vote, VoteResponse)
        assert not vote.is_granted
        assert vote.leadership.leader_id == 1
        snapshot = await node.quorum.answer(fetch(voter, LogPosition(LeaderEpoch(0), Offset(0))))
        assert isinstance(snapshot, FetchResponse)
        start = LogPosition(LeaderEpoch(1), Offset(1))
        found = await node.quorum.answer(fetch(voter, start))
        assert isinstance(found, FetchResponse)
        assert [batch.last_offset for batch in iterate_batches(found.records)] == [2, 3]
        waiting = asyncio.ensure_future(node.quorum.answer(fetch(voter, end, wait_ms=60_000)))
        given_up = asyncio.ensure_future(node.quorum.answer(fetch(voter, end, wait_ms=60_000)))
        await asyncio.sleep(0)
        given_up.cancel()
        await node.commit(topic("b"))
        answered = await waiting
        assert isinstance(answered, FetchResponse)
        assert b"b" in answered.records
        late = asyncio.ensure_future(
            node.quorum.answer(fetch(voter, node.quorum.log.end, wait_ms=60_000))
        )
        await asyncio.sleep(0)
    refused = await late
    assert isinstance(refused, FetchResponse)
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError):
        await node.quorum.answer(asked)


def fetch(replica: VoterKey, position: LogPosition, wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        replica=replica,
        epoch=LeaderEpoch(1),
        position=position,
        max_bytes=1 << 20,
        max_wait_ms=wait_ms,
    )


@pytest.mark.parametrize("which", ["clean", "dirty"])
async def test_the_metadata_of_apache_is_read(
    which: Literal["clean", "dirty"], tmp_path: Path
) -> None:
    directory = unpack(which, tmp_path / "data")
    for _ in range(2):
        async with running(directory, cluster_id=CLUSTER_ID) as node:
            expected = expected_topics()
            assert expected.keys() <= node.image.topics.keys()
            for name, wanted in expected.items():
                assert node.image.topics[name].topic_id == wanted.topic_id
                assert node.image.config_of(ConfigResourceType.TOPIC, name) == wanted.configs
            assert len(node.image.acls) == 2
            assert len(node.image.scram_credentials) == 1
            assert node.quorum.leader_epoch > node.listener.batches[0].epoch


# Failures


async def test_a_damaged_election_is_not_guessed(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path):
        pass
    (tmp_path / METADATA / "quorum-state").write_text("{}")
    with pytest.raises(MetadataLogError, match="quorum-state"):
        async with running(tmp_path):
            pass


async def test_a_failing_disk_ends_the_quorum_and_is_reported_once() -> None:
    disk = simulated()
    async with running(ANYWHERE, filesystem=disk) as node:
        await node.commit(topic("a"))
        disk.fail_at(disk.effects + 1, OSError(errno.EIO, "broken"), for_ever=True)
        with pytest.raises(KafkaError) as caught:
            node.quorum.append([topic("b")], 1)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(node.failures) == 1
        assert "broken" in node.failures[0]
        assert node.image.topics.keys() == {"a"}
        with pytest.raises(KafkaError):
            node.quorum.append([topic("c")], 1)


async def test_a_failed_sync_is_final() -> None:
    disk = simulated()
    async with running(ANYWHERE, filesystem=disk) as node:
        disk.fail_at(disk.effects + 2, OSError(errno.EIO, "sync failed"))
        offset = node.quorum.append([topic("a")], 1)
        with pytest.raises(KafkaError, match="sync failed"):
            await node.quorum.wait_committed(offset)
        assert node.image.topics == {}
        assert not node.quorum.is_leader


async def test_a_full_disk_refuses_and_continues() -> None:
    disk = simulated()
    async with running(ANYWHERE, filesystem=disk) as node:
        await node.commit(topic("a"))
        disk.short_write_at(disk.effects + 1, 10, OSError(errno.ENOSPC, "full"))
        with pytest.raises(KafkaError) as caught:
            node.quorum.append([topic("b")], 1)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await node.commit(topic("c"))
        assert node.image.topics.keys() == {"a", "c"}
        assert node.failures == []
    async with running(ANYWHERE, filesystem=disk) as node:
        assert node.image.topics.keys() == {"a", "c"}


async def test_a_listener_that_cannot_follow_stops_the_node(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        offset = node.quorum.append([RemoveTopicRecord(topic_id=topic("a").topic_id)], 1)
        with pytest.raises(KafkaError, match="does not exist"):
            await node.quorum.wait_committed(offset)
        assert len(node.failures) == 1
    # The record is in the log: no start may pretend that it is not.
    with pytest.raises(MoldauError, match=f"at offset {offset} of the metadata log"):
        async with running(tmp_path):
            pass


async def test_a_subscriber_that_fails_stops_neither_the_node_nor_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_delta: MetadataDelta, image: MetadataImage) -> None:
        if "a" in image.topics and "b" not in image.topics:
            raise ZeroDivisionError

    formatted(tmp_path)
    async with running(tmp_path) as node:
        seen: list[int] = []
        node.feed.subscribe(fail)
        node.feed.subscribe(lambda _, image: seen.append(image.offset))
        offset = await node.commit(topic("a"))
        await node.feed.wait_for(offset)
        assert seen[-1] == offset
        assert node.feed.failures == 1
        assert "a subscriber of the cluster's metadata failed unexpectedly" in caplog.text
        await node.commit(topic("b"))
        assert node.feed.failures == 1
        assert node.failures == []


async def test_a_full_disk_spends_its_reserve_on_the_election() -> None:
    disk = simulated()
    reserve = Reserve(disk, ANYWHERE)
    for is_reserved in (True, False):
        if is_reserved:
            reserve.take(1_000)
        filled: list[Effect] = []

        def fill_up(effect: Effect, filled: list[Effect] = filled) -> None:
            if effect.path.endswith("quorum-state.tmp") and not filled:
                filled.append(effect)
                disk.short_write_at(disk.effects + 1, 3, OSError(errno.ENOSPC, "full"))

        disk.on_effect(fill_up)
        if is_reserved:
            async with running(ANYWHERE, filesystem=disk) as node:
                assert node.quorum.is_leader
                assert not disk.exists(ANYWHERE / "moldau-reserve")
        else:
            with pytest.raises(KafkaError, match="cannot be written: full"):
                async with running(ANYWHERE, filesystem=disk):
                    pass
        assert filled


async def test_a_listener_with_a_fault_of_its_own_stops_the_node_too(tmp_path: Path) -> None:
    class Faulty(QuorumListener):
        def on_commits_end(self) -> None:
            raise ZeroDivisionError

    formatted(tmp_path)
    directory = LogDirectory.open(
        DiskFileSystem(), tmp_path, cluster_id=CLUSTER, node_id=BrokerId(1)
    )
    quorum = QuorumNode(directory, config_for(tmp_path), Clock())
    quorum.add_listener(Faulty())
    await quorum.start()
    with pytest.raises(KafkaError, match="could not follow"):
        await quorum.wait_for_leader()
    await quorum.stop()
    directory.close()
