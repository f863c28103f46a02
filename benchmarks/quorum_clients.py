"""Clients for benchmarks of the metadata quorum, over raw sockets: admin requests through brokers,
and the search for the active controller.
"""

import contextlib
import selectors
import struct
import threading
from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

from node_clients import (
    CREATE_TOPICS_VERSION,
    METADATA_VERSION,
    TIMEOUT_MS,
    TIMEOUT_S,
    RawConnection,
    request_frame,
)
from quorum_peers import Cluster, ClusterNode

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages import response_class
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponsePartitionData,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.wire.frame import read_response
from moldau.protocol.wire.schema import Message

VERSIONS: dict[int, int] = {
    ApiKey.CREATE_TOPICS: CREATE_TOPICS_VERSION,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.DESCRIBE_QUORUM: 1,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.METADATA: METADATA_VERSION,
}
PACE_S = 0.005
"""The pause between two requests of a client that repeats them."""
LOOK_S = 0.05
TOPIC_RESOURCE = 2
SECOND_MS = 1_000


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


# Requests


def create_topic(name: str) -> Message:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def alter_config(topic: str, number: int) -> Message:
    config = AlterableConfig(name="flush.ms", value=str(1_000_000 + number))
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def delete_topics(*names: str) -> Message:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)


def describe_topic(name: str) -> Message:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )


def ask(connection: RawConnection, request: Message) -> Any:
    return connection.ask(
        request, VERSIONS[request.API_KEY], response_class(ApiKey(request.API_KEY))
    )


def errors_in(response: Any) -> list[ErrorCode]:
    rows = response.topics if hasattr(response, "topics") else response.responses
    return [ErrorCode(row.error_code) for row in rows if row.error_code]


def do(port: int, request: Message) -> None:
    """Repeats the request until it is done."""
    errors, give_up = list[ErrorCode](), perf_counter() + TIMEOUT_S
    with RawConnection(port) as connection:
        while perf_counter() < give_up:
            errors = errors_in(ask(connection, request))
            if not errors:
                return
            pause(LOOK_S)
    raise SystemExit(f"{type(request).__name__} is refused: {errors}")


# Many requests


def requests_per_second(ports: Sequence[int], requests: list[Message], connections: int) -> float:
    """Sends them over so many connections, each with one request under way. All must succeed."""
    frames = [request_frame(each, VERSIONS[each.API_KEY]) for each in requests]
    responses: list[bytes] = []
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        opened = [
            stack.enter_context(RawConnection(ports[number % len(ports)]))
            for number in range(connections)
        ]
        following = iter(frames)
        began = perf_counter()
        for connection, frame in zip(opened, following, strict=False):
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.socket.sendall(frame)
        while len(responses) < len(frames):
            for key, _ in selector.select(TIMEOUT_S):
                responses.append(_received(key.data))
                frame = next(following, b"")
                if frame:
                    key.data.socket.sendall(frame)
        took = perf_counter() - began
    api_key = ApiKey(requests[0].API_KEY)
    for response in responses:
        _, read = read_response(response, response_class(api_key), VERSIONS[api_key])
        if errors := errors_in(read):
            raise SystemExit(f"{api_key.name} failed: {errors}")
    return len(frames) / took


def _received(connection: RawConnection) -> bytes:
    (size,) = struct.unpack(">i", connection.receive(4))
    return connection.receive(size)


# Propagation


class Propagation(NamedTuple):
    """Until the other broker knows a new topic and its leader, in milliseconds."""

    from_request: float
    from_response: float


def propagation(creating: RawConnection, looking: RawConnection, name: str) -> Propagation:
    create, describe = create_topic(name), describe_topic(name)
    began = perf_counter()
    if errors := errors_in(ask(creating, create)):
        raise SystemExit(f"topic {name} was not created: {errors}")
    answered = perf_counter()
    while not _is_led(ask(looking, describe)):
        pass
    known = perf_counter()
    return Propagation((known - began) * SECOND_MS, (known - answered) * SECOND_MS)


def _is_led(metadata: Any) -> bool:
    (topic,) = metadata.topics
    return not topic.error_code and all(each.leader_id >= 0 for each in topic.partitions)


# The active controller


class Look:
    """Connections to controllers, to ask each of them whether it leads the quorum."""

    def __init__(self, controllers: Sequence[ClusterNode]) -> None:
        self._connections = [RawConnection(each.port) for each in controllers]

    def close(self) -> None:
        for connection in self._connections:
            connection.socket.close()

    def leader(self) -> DescribeQuorumResponsePartitionData | None:
        """As the leader itself describes the quorum."""
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(
            topic_name="__cluster_metadata", partitions=[partition]
        )
        for connection in self._connections:
            with contextlib.suppress(OSError, SystemExit):
                answer = ask(connection, DescribeQuorumRequest(topics=[topic]))
                (found,) = answer.topics[0].partitions
                if not found.error_code:
                    assert isinstance(found, DescribeQuorumResponsePartitionData)
                    return found
        return None


def wait_whole(cluster: Cluster) -> ClusterNode:
    """Waits until all voters and brokers follow the leader; returns the active controller."""
    give_up = perf_counter() + TIMEOUT_S
    with contextlib.closing(Look(cluster.controllers)) as look:
        while perf_counter() < give_up:
            found = look.leader()
            if found is not None:
                replicas = [*found.current_voters, *found.observers]
                # Of the leader itself it is the present time.
                now_ms = max(each.last_fetch_timestamp for each in replicas)
                following = {
                    each.replica_id
                    for each in replicas
                    if each.log_end_offset >= found.high_watermark
                    and now_ms - each.last_fetch_timestamp < SECOND_MS
                }
                if following >= {node.node_id for node in cluster.nodes}:
                    return cluster.node(found.leader_id)
            pause(LOOK_S)
    raise SystemExit(f"{cluster.label}: not all nodes follow the leader")


class AdminWriter(threading.Thread):
    """Changes a topic's setting through one broker, again and again, until stopped."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__(daemon=True)
        self._connection = RawConnection(port)
        self._topic = topic
        self._stopping = threading.Event()
        self.done_at: list[float] = []
        """When each write was acknowledged."""

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(PACE_S):
            number += 1
            if not errors_in(ask(self._connection, alter_config(self._topic, number))):
                self.done_at.append(perf_counter())

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._connection.socket.close()

    def wait_done_after(self, moment: float) -> None:
        while not self.done_at or self.done_at[-1] < moment:
            if not self.is_alive() or perf_counter() - moment > TIMEOUT_S:
                raise SystemExit("a broker does not serve admin requests any more")
            pause(PACE_S)

    def longest_pause_s(self, since: float) -> float:
        """The longest time without an acknowledgement that ended after `since`."""
        return max(after - before for before, after in pairwise(self.done_at) if after > since)
