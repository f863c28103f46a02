"""Time-dependent behaviour of a node, observed by moving its clock instead of waiting for hours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import (
    EARLIEST,
    LATEST,
    commit,
    committed,
    create_topics,
    delete_topics,
    find_coordinator,
    offset_at,
    produce,
    read_all,
)

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.testing import ThreadBroker, broker

DAY_S = 24 * 3600
PLACE = ("kept", 0)


@contextmanager
def running(configs: dict[str, str], **settings: str) -> Iterator[tuple[ThreadBroker, WireClient]]:
    """A broker with one topic, `kept`, and a connection to it that is never idle for long."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with broker(named | {"connections.max.idle.ms": "-1"} | named) as started:
        assert isinstance(started, ThreadBroker)
        started.create_topic("kept", config=configs)
        with WireClient(started.bootstrap) as client:
            yield started, client


def segment_count(started: ThreadBroker) -> int:
    return len(list((started.directory / "kept-0").glob("*.log")))


def test_records_are_kept_for_a_week_and_no_longer() -> None:
    with running({}) as (started, client):
        produce(client, "kept", b"a", b"b")
        started.clock.advance(seconds=6 * DAY_S)
        assert produce(client, "kept", b"c")[0] == 0
        assert read_all(client, "kept") == [b"a", b"b", b"c"]
        started.clock.advance(seconds=2 * DAY_S)
        wait_for(lambda: offset_at(client, PLACE, EARLIEST) == 3, "retention")
        assert read_all(client, "kept") == []
        assert produce(client, "kept", b"d") == (0, 3)
        started.restart()
        with WireClient(started.bootstrap) as again:
            assert offset_at(again, PLACE, EARLIEST) == 3
            assert read_all(again, "kept") == [b"d"]


def test_a_segment_is_rolled_by_time_and_only_old_ones_go() -> None:
    configs = {
        "segment.ms": str(3600 * 1000),
        "retention.ms": str(3 * 3600 * 1000),
        "message.timestamp.type": "LogAppendTime",
    }
    with running(configs) as (started, client):
        for number in range(5):
            started.clock.advance(seconds=3700)
            assert produce(client, "kept", b"%d" % number) == (0, number)

        def are_old_ones_gone() -> bool:
            # The check that was due may have run before the last record came: the next is due soon.
            started.clock.advance(seconds=10)
            return offset_at(client, PLACE, EARLIEST) == 2

        # The first two are older than three hours, the last is still open.
        wait_for(are_old_ones_gone, "retention")
        assert read_all(client, "kept") == [b"2", b"3", b"4"]
        assert segment_count(started) == 3


def test_deleted_files_are_gone_after_a_minute() -> None:
    with running({}) as (started, client):
        produce(client, "kept", b"a")
        assert delete_topics(client, "kept") == {"kept": 0}
        wait_for(lambda: len(leftovers(started)) == 1, "the renamed directory")
        started.clock.advance(seconds=61)
        wait_for(lambda: not leftovers(started), "the directory's end")


def leftovers(started: ThreadBroker) -> list[Path]:
    return list(started.directory.glob("kept-0.*-delete"))


def test_committed_offsets_expire_with_their_group() -> None:
    with running({"retention.ms": "-1"}) as (started, client):
        wait_for(lambda: find_coordinator(client, "readers") == 0, "the coordinator")
        wait_for(lambda: commit(client, "readers", PLACE, 5) == 0, "the commit")
        started.clock.advance(seconds=6 * DAY_S)
        assert committed(client, "readers") == (0, {PLACE: 5})
        started.clock.advance(seconds=2 * DAY_S)
        wait_for(lambda: committed(client, "readers") == (0, {}), "the offsets' end")
        started.restart()
        with WireClient(started.bootstrap) as again:
            wait_for(lambda: committed(again, "readers") == (0, {}), "the group")


def join(client: WireClient, member_id: str = "") -> tuple[int, str, int]:
    """Error code, member id and generation."""
    answer = client.ask(
        JoinGroupRequest(
            group_id="readers",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
    )
    return answer.error_code, answer.member_id, answer.generation_id


def state_of(client: WireClient) -> str:
    (group,) = client.ask(DescribeGroupsRequest(groups=["readers"])).groups
    return str(group.group_state)


def test_a_member_that_is_silent_for_too_long_is_out() -> None:
    with running({}) as (started, client):
        wait_for(lambda: find_coordinator(client, "readers") == 0, "the coordinator")
        wait_for(lambda: join(client)[0] == ErrorCode.MEMBER_ID_REQUIRED, "the coordinator")
        _, member_id, _ = join(client)
        code, _, generation = join(client, member_id)
        assert code == 0
        sync = SyncGroupRequest(
            group_id="readers",
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        assert client.ask(sync).error_code == 0
        heartbeat = HeartbeatRequest(
            group_id="readers", generation_id=generation, member_id=member_id
        )
        started.clock.advance(seconds=6)
        assert client.ask(heartbeat).error_code == 0
        started.clock.advance(seconds=6)
        # Its last heartbeat was six seconds ago.
        assert client.ask(heartbeat).error_code == 0
        started.clock.advance(seconds=11)
        wait_for(lambda: state_of(client) == "Empty", "the session's end")
        assert client.ask(heartbeat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fetch_that_waits_is_answered_when_its_time_is_up() -> None:
    with running({}) as (started, client):
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = FetchTopic(topic="kept", partitions=[wanted])
        client.send(FetchRequest(max_wait_ms=3_600_000, min_bytes=1, topics=[topic]), 12)
        with WireClient(started.bootstrap) as other:
            # Answered after the first was read: the first one waits by now, or will without delay.
            assert offset_at(other, PLACE, LATEST) == 0
        started.clock.advance(seconds=3600)
        _, answer = client.receive(ApiKey.FETCH, 12)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == 0
        assert not partition.records


def test_unused_connections_are_closed() -> None:
    with running({}, connections_max_idle_ms="600000") as (started, client):
        assert produce(client, "kept", b"a")[0] == 0
        started.clock.advance(seconds=601)
        assert client.hangs_up()
        with WireClient(started.bootstrap) as again:
            assert read_all(again, "kept") == [b"a"]


def test_producers_that_are_silent_for_a_day_are_forgotten() -> None:
    with running({"retention.ms": "-1"}) as (started, client):
        producer = Producer({"bootstrap.servers": started.bootstrap, "enable.idempotence": True})
        producer.produce("kept", b"a")
        assert producer.flush(60) == 0
        request = DescribeProducersRequest(
            topics=[TopicRequest(name="kept", partition_indexes=[0])]
        )

        def known() -> int:
            (partition,) = client.ask(request).topics[0].partitions
            return len(partition.active_producers)

        assert known() == 1
        started.clock.advance(seconds=2 * DAY_S)
        wait_for(lambda: known() == 0, "the producer's end")
        # Forgotten is not refused: it continues, and its next records are accepted.
        producer.produce("kept", b"b")
        assert producer.flush(60) == 0
        assert read_all(client, "kept") == [b"a", b"b"]


def test_a_jump_of_the_clock_leaves_the_node_in_service() -> None:
    """Its own controller must not fence it."""
    with running({"retention.ms": "-1"}) as (started, client):
        for number in range(5):
            started.clock.advance(seconds=DAY_S)
            assert produce(client, "kept", b"x") == (0, number)
            assert create_topics(client, {f"new-{number}": 1})[f"new-{number}"][0] == 0
