import asyncio
import errno
import threading
from pathlib import Path

import pytest
from broker.controller_bench import Bench, bench, register_controller
from broker.metadata_node import CLUSTER, config_for
from support.proofs import proves
from support.waiting import until

from moldau.broker.cluster.lifecycle import (
    BrokerIdentity,
    BrokerLifecycle,
    LifecycleState,
)
from moldau.broker.controller.controller_channel import ClientRequestChannel
from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.core.controller.features import SUPPORTED_FEATURES
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.enums import ConfigResourceType, LeaderRecoveryState
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from moldau.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.wire.schema import Message
from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import NO_LEADER, BrokerId, TopicPartition, Uuid

SHORT_SESSION = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "100"}
UNKNOWN_CODE = 31_000


def create(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    return CreateTopicsRequest(topics=topics)


async def test_a_new_cluster_begins_with_the_records_of_the_format(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", registers=False) as node:
        await node.quorum.wait_committed(node.quorum.last_offset)
        assert node.image.metadata_version == 30
        assert node.image.features["group.version"] == 1
        # Eligible leader replicas need one value for all brokers.
        assert node.image.config_of(ConfigResourceType.BROKER, "") == {"min.insync.replicas": "1"}
        assert not node.feed.has_open_transaction
        node.check()


async def test_the_broker_registers_through_the_controller(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        broker = node.image.brokers[1]
        assert not broker.is_fenced
        assert broker.epoch == node.lifecycle.broker_epoch
        assert broker.endpoints["PLAINTEXT"].host == "here"
        assert node.lifecycle.state is LifecycleState.RUNNING
        await register_controller(node)
        assert "CONTROLLER" in node.image.controllers[1].endpoints
        node.check()


async def test_an_answer_comes_when_the_change_is_committed_and_known_here(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        response = await node.ask(create("orders", partitions=3))
        assert [topic.error_code for topic in response.topics] == [0]
        assert len(node.image.topics["orders"].partitions) == 3
        assert node.quorum.high_watermark > node.quorum.last_offset
        node.check()


async def test_decisions_made_at_once_see_each_other(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        answers = await asyncio.gather(*(node.ask(create("same")) for _ in range(5)))
        codes = sorted(answer.topics[0].error_code for answer in answers)
        assert codes == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 4
        many = await asyncio.gather(*(node.ask(create(f"t-{n}")) for n in range(100)))
        assert all(answer.topics[0].error_code == 0 for answer in many)
        assert len(node.image.topics) == 101
        node.check()


async def test_a_large_request_does_not_keep_others_from_deciding(tmp_path: Path) -> None:
    """It is decided in a thread. A decision made here meanwhile stands, and the first one is
    retried.
    """
    async with bench(tmp_path / "data") as node:
        for attempt in range(20):
            taken = f"taken-{attempt}"
            names = [f"large-{attempt}-{number}" for number in range(300)]
            large = asyncio.ensure_future(node.ask(create(taken, *names)))
            await asyncio.sleep(0)
            # The thread has begun. This decision is nearly always made before its own.
            (small,) = (await node.ask(create(taken))).topics
            codes = {each.name: each.error_code for each in (await large).topics}
            both = {small.error_code, codes.pop(taken)}
            assert both == {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
            assert codes == dict.fromkeys(names, ErrorCode.NONE)
            assert {taken, *names} <= set(node.image.topics)
            node.check()
            if small.error_code == ErrorCode.NONE:
                return
        pytest.fail("a large request was always decided before a small one")


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "data"
    async with bench(path) as node:
        await node.ask(create("kept", "gone"))
        await node.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=30_000)
        )
        topic_id, epoch = node.image.topics["kept"].topic_id, node.lifecycle.broker_epoch
    async with bench(path, incarnation=2) as node:
        assert set(node.image.topics) == {"kept"}
        assert node.image.topics["kept"].topic_id == topic_id
        assert node.lifecycle.broker_epoch > epoch
        node.check()


async def test_a_clean_restart_keeps_the_lead_without_doubt(tmp_path: Path) -> None:
    path = tmp_path / "data"
    async with bench(path) as node:
        await node.ask(create("t"))
        epoch = node.lifecycle.broker_epoch
        await node.lifecycle.leave(10_000)
        assert node.image.brokers[1].is_fenced
        assert node.image.topics["t"].partitions[0].leader == NO_LEADER
    async with bench(path, incarnation=2, previous_epoch=epoch) as node:
        partition = node.image.topics["t"].partitions[0]
        assert (partition.leader, partition.isr) == (1, (1,))
        assert partition.leader_recovery_state == LeaderRecoveryState.RECOVERED
        assert partition.leader_epoch == 2


async def test_a_killed_node_registers_again_at_once(tmp_path: Path) -> None:
    """Kafka makes it wait for the session of its previous incarnation, nine seconds by default."""
    path = tmp_path / "data"
    async with bench(path) as node:
        await node.ask(create("t"))
    async with bench(path, incarnation=2) as node:
        assert node.lifecycle.state is LifecycleState.RUNNING
        assert node.image.topics["t"].partitions[0].leader == 1


async def test_a_broker_that_falls_silent_is_fenced(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", SHORT_SESSION) as node:
        await node.ask(create("t"))
        await node.lifecycle.close()
        fenced = asyncio.Event()
        node.feed.subscribe(lambda _, image: fenced.set() if image.brokers[1].is_fenced else None)
        for _ in range(12):
            await turns(node)
            node.clock.advance(100)
        await fenced.wait()
        partition = node.image.partition(TopicPartition("t", 0))
        assert partition is not None
        assert partition.leader == NO_LEADER
        node.check()


async def turns(node: Bench) -> None:
    """Time for due timers, and for the responses to heartbeats."""
    for _ in range(10):
        await asyncio.sleep(0)
    await node.quorum.wait_committed(node.quorum.last_offset)


@proves("broker.heartbeat.interval.ms")
async def test_heartbeats_keep_the_session(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", SHORT_SESSION) as node:
        for _ in range(30):
            node.clock.advance(110)
            await turns(node)
        assert not node.image.brokers[1].is_fenced


async def test_brokers_are_not_blamed_for_our_own_absence(tmp_path: Path) -> None:
    """A blocked event loop delays heartbeats."""
    async with bench(tmp_path / "data", SHORT_SESSION) as node:
        for _ in range(5):
            node.clock.advance(20_000)
            await turns(node)
        assert not node.image.brokers[1].is_fenced


async def test_refusals_are_answers(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        stale = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0)
        assert (await node.ask(stale)).error_code == ErrorCode.STALE_BROKER_EPOCH
        huge = await node.ask(create("huge", partitions=20_000))
        assert [topic.error_code for topic in huge.topics] == [ErrorCode.POLICY_VIOLATION]
        assert not node.image.topics
        node.check()


async def test_a_closed_controller_decides_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await node.lifecycle.close()
        node.controller.close()
        with pytest.raises(KafkaError) as refused:
            await node.controller.handle(create("t"), 7)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER


@proves("request.timeout.ms")
async def test_no_request_waits_for_ever_for_a_controller(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", {"request.timeout.ms": "30"}) as node:
        await node.lifecycle.close()
        node.controller.close()
        with pytest.raises(KafkaError) as refused:
            await node.ask(create("t"))
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_request_without_time_changes_nothing(tmp_path: Path) -> None:
    """As in Kafka, whose controller checks the deadline first."""
    async with bench(tmp_path / "data") as node:
        for timeout_ms in (0, -1):
            request = create("t", "u")
            request.timeout_ms = timeout_ms
            answer = await node.ask(request)
            codes = [topic.error_code for topic in answer.topics]
            assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 2
        assert node.controller.image.topic("t") is None


async def test_a_response_waits_no_longer_than_requested_and_the_change_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_free = threading.Event()
    is_free.set()
    sync = DiskFile.sync

    def slow_sync(file: DiskFile) -> None:
        is_free.wait()
        sync(file)

    monkeypatch.setattr(DiskFile, "sync", slow_sync)
    async with bench(tmp_path / "data") as node:
        is_free.clear()
        request = create("t")
        request.timeout_ms = 500
        waiting = asyncio.ensure_future(node.ask(request))
        await asyncio.sleep(0)
        node.clock.advance(501)
        answer = await waiting
        is_free.set()
        assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "it may still happen" in answer.topics[0].error_message
        assert (await node.ask(create("t"))).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert node.image.topic("t") is not None


async def test_a_registration_without_a_response_ends(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", registers=False) as node:
        node.controller.close()
        start = asyncio.ensure_future(node.lifecycle.start())
        await asyncio.sleep(0)
        node.clock.advance(120_000)
        with pytest.raises(KafkaError) as refused:
            await start
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "could not register" in refused.value.detail


@proves("initial.broker.registration.timeout.ms")
async def test_the_wait_for_a_registration_follows_the_settings(tmp_path: Path) -> None:
    settings = {"initial.broker.registration.timeout.ms": "5000"}
    async with bench(tmp_path / "data", settings, registers=False) as node:
        node.controller.close()
        start = asyncio.ensure_future(node.lifecycle.start())
        await asyncio.sleep(0)
        for pause_ms, is_over in ((4_000, False), (2_000, True)):
            node.clock.advance(pause_ms)
            for _ in range(100):
                await asyncio.sleep(0)
            assert start.done() == is_over
        with pytest.raises(KafkaError, match="could not register"):
            await start


async def test_a_registration_that_is_refused_for_good_ends_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", registers=False) as node:
        request = BrokerRegistrationRequest(
            broker_id=7,
            cluster_id=CLUSTER,
            incarnation_id=Uuid(b"7" * 16),
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[node.directory.meta.directory_id or Uuid(bytes(16))],
        )
        assert (await node.ask(request)).error_code == ErrorCode.NONE
        with pytest.raises(KafkaError) as refused:
            await node.lifecycle.start()
        assert refused.value.code is ErrorCode.INVALID_REGISTRATION


class NewerController:
    """Answers the first request of each kind with an error code of a later Kafka."""

    def __init__(self, channel: ClientRequestChannel) -> None:
        self.refused: list[int] = []
        self._channel = channel

    async def send(self, request: Message, version: int | None = None) -> Message:
        if request.API_KEY not in self.refused:
            self.refused.append(request.API_KEY)
            if isinstance(request, BrokerRegistrationRequest):
                return BrokerRegistrationResponse(error_code=UNKNOWN_CODE)
            return BrokerHeartbeatResponse(error_code=UNKNOWN_CODE)
        return await self._channel.send(request, version)


async def test_a_broker_outlives_error_codes_that_it_does_not_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path / "data", registers=False) as node:
        newer = NewerController(node.channel)
        identity = BrokerIdentity(
            node_id=BrokerId(1),
            cluster_id=CLUSTER,
            incarnation_id=Uuid(b"1" * 16),
            directories={"": node.directory.meta.directory_id or Uuid(bytes(16))},
        )
        lifecycle = BrokerLifecycle(identity, newer, node.feed, node.settings, node.clock)
        await lifecycle.start()
        await lifecycle.unfence()
        assert lifecycle.state is LifecycleState.RUNNING
        await lifecycle.close()
    assert newer.refused == [ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT]
    assert f"a newer controller sent error code {UNKNOWN_CODE}" in caplog.text


async def test_an_unregistered_broker_logs_it_and_stops_without_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path / "data") as node:
        await node.ask(UnregisterBrokerRequest(broker_id=1))
        with pytest.raises(KafkaError) as refused:
            await node.lifecycle.leave(30_000)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert "it was unregistered, restart it to register it again" in caplog.text


class SilentController:
    """Does not answer the heartbeats of a broker until it asks for controlled shutdown."""

    def __init__(self, channel: ClientRequestChannel) -> None:
        self.unanswered = 0
        self.is_silent = False
        self._channel = channel

    async def send(self, request: Message, version: int | None = None) -> Message:
        if self.is_silent and not getattr(request, "want_shut_down", False):
            self.unanswered += 1
            await asyncio.Event().wait()
        return await self._channel.send(request, version)


async def test_a_heartbeat_without_an_answer_does_not_end_the_controlled_shutdown(
    tmp_path: Path,
) -> None:
    """It was sent before the broker was to stop; the request to stop follows it."""
    async with bench(tmp_path / "data", SHORT_SESSION, registers=False) as node:
        channel = SilentController(node.channel)
        identity = BrokerIdentity(
            node_id=BrokerId(1),
            cluster_id=CLUSTER,
            incarnation_id=Uuid(b"1" * 16),
            directories={"": node.directory.meta.directory_id or Uuid(bytes(16))},
        )
        lifecycle = BrokerLifecycle(identity, channel, node.feed, node.settings, node.clock)
        await lifecycle.start()
        await lifecycle.unfence()
        channel.is_silent = True
        node.clock.advance(100)
        await until(lambda: channel.unanswered == 1)
        leaving = asyncio.ensure_future(lifecycle.leave(30_000))
        await asyncio.sleep(0)
        node.clock.advance(1_001)
        await leaving
        assert node.image.brokers[1].is_fenced
        assert channel.unanswered == 1
        await lifecycle.close()


async def test_a_failed_disk_ends_the_wait_for_an_answer(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await node.lifecycle.close()
        waiting = asyncio.ensure_future(node.ask(create("t")))
        await asyncio.sleep(0)
        node.directory.fail(OSError(5, "Input/output error"))
        answer = await waiting
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_a_broker_reports_its_directories_once_the_metadata_supports_them(
    tmp_path: Path,
) -> None:
    path, settings = tmp_path / "data", {"broker.heartbeat.interval.ms": "100"}
    voters = {"controller.quorum.voters": "1@127.0.0.1:9093"}
    static = {**settings, **voters, "controller.quorum.bootstrap.servers": ""}
    options = FormatOptions(cluster_id=CLUSTER, release_version="3.6")
    format_node(DiskFileSystem(), config_for(path, static), options, 1)
    async with bench(path, static) as node:
        assert node.image.metadata_version == 14
        assert node.image.brokers[1].log_directories == ()
        epoch = node.image.brokers[1].epoch
        told = asyncio.Event()
        node.feed.subscribe(
            lambda _, image: told.set() if image.brokers[1].log_directories else None
        )
        newest = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
        answer = await node.ask(UpdateFeaturesRequest(feature_updates=[newest]))
        assert answer.error_code == ErrorCode.NONE
        node.clock.advance(200)
        await told.wait()
        broker = node.image.brokers[1]
        assert (broker.epoch, broker.is_fenced) == (epoch, False)
        node.check()


async def test_static_voters_are_raised_with_a_release(tmp_path: Path) -> None:
    path = tmp_path / "data"
    voters = {"controller.quorum.voters": "1@127.0.0.1:9093"}
    static = {**voters, "controller.quorum.bootstrap.servers": ""}
    options = FormatOptions(cluster_id=CLUSTER, release_version="4.0")
    format_node(DiskFileSystem(), config_for(path, static), options, 1)
    requested = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature="kraft.version", max_version_level=1),
            FeatureUpdateKey(feature="metadata.version", max_version_level=30),
        ]
    )
    async with bench(path, static) as node:
        assert node.quorum.kraft_version == 0
        assert (await node.ask(requested)).error_code == ErrorCode.NONE
        await node.ask(create("orders"))
        node.check()
    async with bench(path, static, incarnation=2) as node:
        assert (node.quorum.kraft_version, node.image.metadata_version) == (1, 30)
        assert "orders" in node.image.topics
        assert (await node.ask(requested)).error_code == ErrorCode.NONE
        node.check()


async def test_a_disk_that_fills_up_within_a_decision_keeps_what_is_written() -> None:
    """Fencing a broker with many partitions takes several batches."""
    disk = SimulatedDisk()
    async with bench(Path("/data"), filesystem=disk) as node:
        await node.ask(create("large", partitions=1500))
        await node.lifecycle.close()
        # The first batch is written, the second is not.
        disk.fail_at(disk.effects + 2, OSError(errno.ENOSPC, "No space left on device"))
        fence = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=node.lifecycle.broker_epoch, want_fence=True
        )
        assert (await node.ask(fence)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await node.quorum.wait_committed(node.quorum.last_offset)
        leaders = [each.leader for each in node.image.topics["large"].partitions.values()]
        assert 0 < leaders.count(NO_LEADER) < 1500
        node.check()
