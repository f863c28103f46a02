"""Misbehaving clients, one function each, for `fairness.py`. Each gets a port and a deadline; none
sends more than its loop shows.
"""

import contextlib
import resource
import select
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from node_clients import (
    CREATE_TOPICS_VERSION,
    FETCH_VERSION,
    PRODUCE_VERSION,
    RawConnection,
    create_topics,
    produce_request,
    request_frame,
)
from node_peers import API_VERSIONS_V0
from rude_admins import (
    APPEND,
    SUBTRACT,
    contended,
    lists_of_settings_changed,
    many_new_partitions,
    many_topics_checked,
    many_topics_deleted,
    settings_replaced,
    topics_created_and_deleted,
)
from rude_admins import TOPICS as ADMIN_TOPICS
from rude_tools import Deadline, connected, one_after_the_other, send_and_drop

from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.records.compression import Compression

if TYPE_CHECKING:
    import socket

TOPIC = "rude"
LOADED_TOPIC = "rude-loaded"
BIG_BATCH_TOPIC = "rude-big-batch"
GROUP = "rude-group"
WIDE_TOPIC = "rude-wide"
GROUP_OFFSETS = 1_000
TOPIC_RESOURCE = 2
FIND_COORDINATOR_VERSION = 4
LIST_OFFSETS_VERSION = 7
# New members need no second request.
JOIN_GROUP_VERSION = 3
# The record with the largest timestamp (KIP-734).
LATEST = -3
LONG_NAME = "g" * 32_000
CONNECTIONS_MAX = 3_000
DESCRIPTORS = 8_192
FRAME_BYTES = 100_000_000
PIPELINED_BYTES = 4_000_000
BIG_BATCH_RECORDS = 1_000_000
# Recent, so that retention keeps it.
NOW_MS = int(datetime.now(UTC).timestamp() * 1000)


# Preparations


def prepare(port: int) -> None:
    create_topics(port, [TOPIC, LOADED_TOPIC, BIG_BATCH_TOPIC, *ADMIN_TOPICS])
    with RawConnection(port) as connection:
        _prepare_group(connection)
        _prepare_records(connection)
        _prepare_big_batch(connection)


def _prepare_group(connection: RawConnection) -> None:
    """A group with a thousand offsets."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
    for _ in range(600):
        found = connection.ask(find, FIND_COORDINATOR_VERSION, FindCoordinatorResponse)
        if not found.coordinators[0].error_code:
            break
        select.select([], [], [], 0.1)
    wide = CreatableTopic(name=WIDE_TOPIC, num_partitions=GROUP_OFFSETS, replication_factor=1)
    create = CreateTopicsRequest(topics=[wide], timeout_ms=60_000)
    connection.ask(create, CREATE_TOPICS_VERSION, CreateTopicsResponse)
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=1)
        for number in range(GROUP_OFFSETS)
    ]
    topic = OffsetCommitRequestTopic(name=WIDE_TOPIC, partitions=partitions)
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    codes: set[int] = set()
    for _ in range(600):
        answer = connection.ask(request, 2, OffsetCommitResponse)
        codes = {each.error_code for topic in answer.topics for each in topic.partitions}
        if codes == {0}:
            return
        select.select([], [], [], 0.1)
    raise SystemExit(f"{GROUP}: errors {codes}")


def _prepare_records(connection: RawConnection) -> None:
    """16 MB in one partition."""
    record = Record(offset=0, timestamp=NOW_MS, key=None, value=bytes(500_000))
    for _ in range(32):
        _produce(connection, LOADED_TOPIC, build_batch([record]))


def _prepare_big_batch(connection: RawConnection) -> None:
    """Below the default max.message.bytes once compressed. The last record is the latest."""
    records = [
        Record(offset=offset, timestamp=NOW_MS - 1, key=None, value=None)
        for offset in range(BIG_BATCH_RECORDS - 1)
    ]
    records.append(Record(offset=len(records), timestamp=NOW_MS, key=None, value=None))
    options = BatchOptions(compression=Compression.ZSTD)
    _produce(connection, BIG_BATCH_TOPIC, build_batch(records, options))


def _produce(connection: RawConnection, topic: str, records: bytes) -> None:
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=60_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    answer = connection.ask(request, PRODUCE_VERSION, ProduceResponse)
    code = answer.responses[0].partition_responses[0].error_code
    if code:
        raise SystemExit(f"{topic}: error {code}")


# Too many requests


def pipelined_small_requests(port: int, deadline: Deadline) -> None:
    send_and_drop(port, API_VERSIONS_V0 * 16_384, deadline)


def pipelined_records(acks: int, value_bytes: int) -> Callable[[int, Deadline], None]:
    def send(port: int, deadline: Deadline) -> None:
        request = produce_request(TOPIC, value_bytes)
        request.acks = acks
        frame = request_frame(request, PRODUCE_VERSION)
        send_and_drop(port, frame * max(PIPELINED_BYTES // len(frame), 1), deadline)

    return send


def records_for_many_partitions(port: int, deadline: Deadline) -> None:
    records = build_batch([Record(offset=0, timestamp=NOW_MS, key=None, value=b"x")])
    data = [PartitionProduceData(index=n, records=records) for n in range(GROUP_OFFSETS)]
    topics = [TopicProduceData(name=WIDE_TOPIC, partition_data=data)]
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics)
    one_after_the_other(port, request_frame(request, PRODUCE_VERSION), deadline)


def pipelined_fetches(port: int, deadline: Deadline) -> None:
    frame = _fetch_frame([FetchPartition(partition=0, partition_max_bytes=1)], min_bytes=1)
    send_and_drop(port, frame * 4_096, deadline)


def answers_never_read(port: int, deadline: Deadline) -> None:
    frame = _fetch_frame([FetchPartition(partition=0, partition_max_bytes=1 << 24)], min_bytes=1)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(connected(port))
            connection.sendall(frame * 20)
        deadline.wait()


# The same name repeated many times


def one_topic_described_often(port: int, deadline: Deadline) -> None:
    resource_ = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC)
    request = DescribeConfigsRequest(resources=[resource_] * 2_500, include_documentation=True)
    one_after_the_other(port, request_frame(request, 4), deadline)


def one_group_fetched_often(port: int, deadline: Deadline) -> None:
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)] * 30_000
    one_after_the_other(port, request_frame(OffsetFetchRequest(groups=groups), 8), deadline)


# Frames that never end


def many_half_frames(port: int, deadline: Deadline) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(connected(port))
                connection.sendall(struct.pack(">i", FRAME_BYTES) + b"later")
            if not deadline.left:
                break
        deadline.wait()


def large_half_frames(port: int, deadline: Deadline) -> None:
    """Sixty at once, each with as many bytes as the node accepts, up to 90 of 100 MB."""
    piece = memoryview(bytes(1 << 20))
    with contextlib.ExitStack() as stack:
        left: dict[socket.socket, int] = {}
        for _ in range(60):
            connection = stack.enter_context(connected(port))
            connection.sendall(struct.pack(">i", FRAME_BYTES))
            connection.setblocking(False)
            left[connection] = 90_000_000
        while left and deadline.left:
            _, writable, _ = select.select([], list(left), [], deadline.left)
            for connection in writable:
                try:
                    left[connection] -= connection.send(piece[: left[connection]])
                except OSError:
                    left[connection] = 0
                if not left[connection]:
                    del left[connection]
        deadline.wait()


# Waiting fetches


def _fetch_frame(
    partitions: list[FetchPartition], *, min_bytes: int, topic: str = LOADED_TOPIC
) -> bytes:
    request = FetchRequest(
        max_wait_ms=30_000,
        min_bytes=min_bytes,
        max_bytes=2**31 - 1,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )
    return request_frame(request, FETCH_VERSION)


def fetches_that_wait_with_data(port: int, deadline: Deadline) -> None:
    """Each could get 16 MB, and requests more than there is."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**31 - 1)
    _wait_with(port, _fetch_frame([partition], min_bytes=2**31 - 1), 200, deadline)


def a_thousand_waiting_fetches(port: int, deadline: Deadline) -> None:
    """At the end of the topic that the others write to."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    frame = _fetch_frame([partition], min_bytes=2**31 - 1, topic=TOPIC)
    _wait_with(port, frame, 1_000, deadline)


def _wait_with(port: int, frame: bytes, count: int, deadline: Deadline) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(connected(port)).sendall(frame)
        deadline.wait()


# Requests that take long to serve


def commits_kept_for_ever(port: int, deadline: Deadline) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=GROUP,
        retention_time_ms=2**63 - 1,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    one_after_the_other(port, request_frame(request, 2), deadline)


def large_members_that_never_leave(port: int, deadline: Deadline) -> None:
    """Each joins a group of its own with 16 MB, over a connection that is closed at once."""
    protocols = [
        JoinGroupRequestProtocol(name=f"p{number}", metadata=bytes(250_000)) for number in range(64)
    ]
    for number in range(100):
        request = JoinGroupRequest(
            group_id=f"{GROUP}-{number}",
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        with contextlib.suppress(OSError), connected(port) as connection:
            connection.sendall(request_frame(request, JOIN_GROUP_VERSION))
            connection.settimeout(0.05)
            connection.recv(4)
    deadline.wait()


def coordinators_of_long_names(port: int, deadline: Deadline) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[LONG_NAME] * 1_000)
    one_after_the_other(port, request_frame(request, FIND_COORDINATOR_VERSION), deadline)


def groups_of_long_names(port: int, deadline: Deadline) -> None:
    names = [f"{number}{LONG_NAME}"[:32_000] for number in range(1_000)]
    one_after_the_other(port, request_frame(DescribeGroupsRequest(groups=names), 5), deadline)


def offsets_in_the_big_batch(timestamp: int) -> Callable[[int, Deadline], None]:
    def ask(port: int, deadline: Deadline) -> None:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name=BIG_BATCH_TOPIC, partitions=[partition])
        frame = request_frame(ListOffsetsRequest(topics=[topic]), LIST_OFFSETS_VERSION)
        one_after_the_other(port, frame, deadline)

    return ask


class Case(NamedTuple):
    name: str
    rude: Callable[[int, Deadline], None]


CASES = [
    Case("no rude client", lambda _port, deadline: deadline.wait()),
    Case("small requests, pipelined", pipelined_small_requests),
    Case("records with acks=0, pipelined", pipelined_records(0, 100)),
    Case("records with acks=1, pipelined", pipelined_records(1, 100)),
    Case("records with acks=all, pipelined", pipelined_records(-1, 100)),
    Case("records of 1 MB with acks=0, pipelined", pipelined_records(0, 1_000_000)),
    Case("records of 1 MB with acks=all, pipelined", pipelined_records(-1, 1_000_000)),
    Case("records for 1,000 partitions in a request", records_for_many_partitions),
    Case("fetches, pipelined", pipelined_fetches),
    Case("DescribeConfigs of one topic, 2,500 times in a request", one_topic_described_often),
    Case("OffsetFetch of one group, 30,000 times in a request", one_group_fetched_often),
    Case("3,000 connections with 9 bytes of a frame", many_half_frames),
    Case("60 connections with up to 90 of 100 MB", large_half_frames),
    Case("50 connections that never read 1,000 answers", answers_never_read),
    Case("200 waiting fetches with 16 MB each", fetches_that_wait_with_data),
    Case("1,000 waiting fetches of the topic written to", a_thousand_waiting_fetches),
    Case("OffsetCommit kept for 2^63-1 ms", commits_kept_for_ever),
    Case("100 members of groups with 16 MB each", large_members_that_never_leave),
    Case("FindCoordinator of 32 MB of names", coordinators_of_long_names),
    Case("DescribeGroups of 32 MB of names", groups_of_long_names),
    Case("ListOffsets by time in a million records", offsets_in_the_big_batch(NOW_MS)),
    Case("ListOffsets of the latest time in a million records", offsets_in_the_big_batch(LATEST)),
    Case("50 topics created and deleted, again and again", topics_created_and_deleted),
    Case("CreateTopics of 5,000, only checked", many_topics_checked),
    Case("DeleteTopics of 50,000 unknown", many_topics_deleted),
    Case("CreatePartitions of 16,000 unknown", many_new_partitions),
    Case("the same, while settings are changed", contended(many_new_partitions)),
    Case("CreateTopics of 5,000, while settings are changed", contended(many_topics_checked)),
    Case("AlterConfigs with 22 values of 32 KB", settings_replaced),
    Case("IncrementalAlterConfigs, APPEND to 22 lists of 32 KB", lists_of_settings_changed(APPEND)),
    Case("SUBTRACT from 22 lists of 32 KB", lists_of_settings_changed(SUBTRACT)),
]


def run(name: str, port: int, seconds: float) -> None:
    """Runs the case in a process of its own."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
    rude = next(case.rude for case in CASES if case.name == name)
    with contextlib.suppress(OSError):
        rude(port, Deadline(seconds))
