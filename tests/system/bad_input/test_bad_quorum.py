"""Bad requests of the quorum on the controller's listener: each is refused or ends its connection,
the node keeps its leadership, and no other connection waits.

The id BI-039 is the row of the project's list of bad inputs for requests between nodes.
"""

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from support.running_node import QUICK_SETTINGS, RunningNode, free_port
from support.wire_client import HungUpError, WireClient

from moldau.broker.controller_handlers.quorum_requests import handle_quorum_request
from moldau.broker.controller_handlers.table import CONTROLLER_HANDLERS
from moldau.protocol import messages as m
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    request_class,
    update_raft_voter,
    vote,
)
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from moldau.protocol.wire.frame import build_request
from moldau.protocol.wire.schema import Message
from moldau.types import INT32_MAX, METADATA_PARTITION, METADATA_TOPIC_ID, Uuid

TOPIC = METADATA_PARTITION.topic
MANY = 20_000
LENGTHS = (-2, -1, 0, 1, 2**15 - 1, 2**15, 2**31 - 1)
QUORUM_APIS = [
    api_key for api_key, load in CONTROLLER_HANDLERS.items() if load() is handle_quorum_request
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    port, controller_port = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    settings = {**QUICK_SETTINGS, "listeners": listeners}
    with RunningNode(tmp_path_factory.mktemp("node"), settings, port=port) as running:
        running.start()
        yield running


def controller_of(node: RunningNode) -> str:
    return node.settings["listeners"].rpartition("//")[2]


def epoch_of(node: RunningNode) -> int:
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=TOPIC, partitions=[partition])
    with WireClient(controller_of(node)) as client:
        answer = client.ask(DescribeQuorumRequest(topics=[topic]), 2)
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.leader_id) == (0, 1)
    return int(found.leader_epoch)


@pytest.fixture(autouse=True)
def _unharmed(node: RunningNode) -> Iterator[None]:
    """It leads as before, and has nothing unforeseen to report."""
    epoch = epoch_of(node)
    yield
    assert epoch_of(node) == epoch
    assert "failed unexpectedly" not in node.errors
    assert "Traceback" not in node.errors


@pytest.fixture
def client(node: RunningNode) -> Iterator[WireClient]:
    with WireClient(controller_of(node)) as connected:
        yield connected


def versions_of(api_key: ApiKey) -> range:
    served = API_VERSIONS[api_key].controller
    assert served is not None
    return range(served[0], served[1] + 1)


@pytest.mark.parametrize("api_key", QUORUM_APIS, ids=lambda api_key: api_key.name)
def test_bi_039_empty_requests_are_refused(client: WireClient, api_key: ApiKey) -> None:
    """Nothing but defaults, in every version. An empty FetchSnapshot ended Apache's controllers
    (CVE-2026-83525).
    """
    for version in versions_of(api_key):
        answer = client.ask(request_class(api_key)(), version)
        if api_key is not ApiKey.FETCH or version >= 7:
            assert answer.error_code != ErrorCode.NONE


def of_partitions(kind: Any, names: list[tuple[str, list[int]]]) -> Message:
    """A request about these topics and partitions."""
    module, topic_name, number = {
        m.VoteRequest: (vote.VoteRequestTopicData, "topic_name", "partition_index"),
        m.BeginQuorumEpochRequest: (
            begin_quorum_epoch.BeginQuorumEpochRequestTopicData,
            "topic_name",
            "partition_index",
        ),
        m.EndQuorumEpochRequest: (
            end_quorum_epoch.EndQuorumEpochRequestTopicData,
            "topic_name",
            "partition_index",
        ),
        m.FetchRequest: (fetch.FetchTopic, "topic", "partition"),
        m.FetchSnapshotRequest: (
            fetch_snapshot.FetchSnapshotRequestTopicSnapshot,
            "name",
            "partition",
        ),
    }[kind]
    parts: dict[Any, Any] = {
        m.VoteRequest: vote.VoteRequestPartitionData,
        m.BeginQuorumEpochRequest: begin_quorum_epoch.BeginQuorumEpochRequestPartitionData,
        m.EndQuorumEpochRequest: end_quorum_epoch.EndQuorumEpochRequestPartitionData,
        m.FetchRequest: fetch.FetchPartition,
        m.FetchSnapshotRequest: fetch_snapshot.FetchSnapshotRequestPartitionSnapshot,
    }
    topics = []
    for name, numbers in names:
        topic: Any = module(**{topic_name: name})
        topic.partitions = [parts[kind](**{number: each}) for each in numbers]
        if kind is m.FetchRequest:
            topic.topic_id = METADATA_TOPIC_ID
        topics.append(topic)
    request: Message = kind(topics=topics)
    return request


OF_PARTITIONS = [
    m.VoteRequest,
    m.BeginQuorumEpochRequest,
    m.EndQuorumEpochRequest,
    m.FetchRequest,
    m.FetchSnapshotRequest,
]
SHAPES: dict[str, list[tuple[str, list[int]]]] = {
    "no partition": [(TOPIC, [])],
    "no partition in the first topic": [("", []), (TOPIC, [0])],
    "a partition twice": [(TOPIC, [0, 0])],
    "a topic twice": [(TOPIC, [0]), (TOPIC, [0])],
    "many partitions": [(TOPIC, list(range(MANY)))],
    "many topics": [(f"t{number}", []) for number in range(MANY)],
    "many topics with a partition": [(TOPIC, [0])] * MANY,
    "another partition": [(TOPIC, [-1])],
    "a long name": [("n" * 32_000, [0])],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", OF_PARTITIONS, ids=lambda kind: kind.__name__)
def test_bi_039_other_shapes_are_answered(client: WireClient, kind: Any, shape: str) -> None:
    request = of_partitions(kind, SHAPES[shape])
    answer = client.ask(request, request.VERSIONS[1])
    # Fetches name topics by their ids, and Kafka looks for the partition of a snapshot.
    is_served = kind is m.FetchRequest and shape == "a long name"
    if kind is not m.FetchSnapshotRequest and not is_served:
        assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("number", [-(2**31), -1, 0, INT32_MAX])
@pytest.mark.parametrize("max_bytes", [-(2**31), -1, 0, 1, INT32_MAX])
def test_bi_039_any_sizes_and_positions(
    node: RunningNode, client: WireClient, number: int, max_bytes: int
) -> None:
    epoch = epoch_of(node)
    partition = fetch.FetchPartition(
        current_leader_epoch=epoch, fetch_offset=number, last_fetched_epoch=0
    )
    topic = fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])
    for replica_id in (-(2**31), -1, 5, INT32_MAX):
        state = fetch.ReplicaState(replica_id=replica_id)
        request = m.FetchRequest(replica_state=state, max_bytes=max_bytes, topics=[topic])
        (answer,) = client.ask(request, 18).responses
        assert answer.partitions[0].error_code in {
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        }
    wanted = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        current_leader_epoch=epoch,
        position=number,
        snapshot_id=fetch_snapshot.FetchSnapshotRequestSnapshotId(end_offset=number, epoch=number),
    )
    named = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(name=TOPIC, partitions=[wanted])
    snapshot = m.FetchSnapshotRequest(max_bytes=max_bytes, topics=[named])
    (found,) = client.ask(snapshot, 1).topics
    assert found.partitions[0].error_code in {
        ErrorCode.SNAPSHOT_NOT_FOUND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }


def test_bi_039_addresses_of_new_voters(client: WireClient) -> None:
    """Nothing that a voter says about its address can be worse than an address without a node."""
    hosts = [
        "",
        "x" * 300,
        "a\0b",
        "..",
        "\u00fc.invalid",
        "-",
        "127.0.0.1",
        "no-such-host.invalid",
    ]
    for host in hosts:
        listener = add_raft_voter.Listener(name="CONTROLLER", host=host, port=1)
        request = m.AddRaftVoterRequest(
            cluster_id=None, voter_id=7, voter_directory_id=Uuid(b"v" * 16), listeners=[listener]
        )
        answer = client.ask(request, 1)
        assert answer.error_code in {
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNSUPPORTED_VERSION,
        }, (host, answer)


def test_bi_039_many_listeners(client: WireClient) -> None:
    named = [f"L{number}" for number in range(MANY)]
    listeners = [update_raft_voter.Listener(name=name, host="h", port=1) for name in named]
    update = m.UpdateRaftVoterRequest(cluster_id=None, voter_id=7, listeners=listeners)
    assert client.ask(update, 0).error_code != ErrorCode.NONE
    added = [add_raft_voter.Listener(name=name, host="h", port=1) for name in named]
    add = m.AddRaftVoterRequest(
        cluster_id=None, voter_id=7, voter_directory_id=Uuid(b"v" * 16), listeners=added
    )
    refused = client.ask(add, 1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert len(refused.error_message) == 5_000
    for kind in (m.AddRaftVoterRequest, m.RemoveRaftVoterRequest):
        refused = client.ask(kind(cluster_id="\u00fc" * 16_000), 0)
        assert refused.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_waiting_fetch_delays_only_its_own_connection(node: RunningNode) -> None:
    epoch = epoch_of(node)
    with WireClient(controller_of(node)) as waiting, WireClient(controller_of(node)) as other:
        partition = fetch.FetchPartition(
            current_leader_epoch=epoch, fetch_offset=end_of(node), last_fetched_epoch=epoch
        )
        topic = fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])
        request = m.FetchRequest(max_wait_ms=600_000, max_bytes=1, topics=[topic])
        waiting.send(request, 18)
        for _ in range(10):
            assert other.ask(m.ApiVersionsRequest(), 0).error_code == 0
        # The next NoOp answers it, and its own connection continues.
        waiting.send(m.ApiVersionsRequest(), 0)
        assert waiting.receive(ApiKey.FETCH, 18)[1].error_code == 0
        assert waiting.receive(ApiKey.API_VERSIONS, 0)[1].error_code == 0


def end_of(node: RunningNode) -> int:
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=TOPIC, partitions=[partition])
    with WireClient(controller_of(node)) as client:
        answer = client.ask(DescribeQuorumRequest(topics=[topic]), 2)
    return int(answer.topics[0].partitions[0].current_voters[0].log_end_offset)


# Damaged frames


def corpus() -> list[bytes]:
    shape = SHAPES["a topic twice"]
    requests: list[Message] = [of_partitions(kind, shape) for kind in OF_PARTITIONS]
    listener = add_raft_voter.Listener(name="CONTROLLER", host="127.0.0.1", port=1)
    requests.append(m.AddRaftVoterRequest(cluster_id=None, voter_id=-1, listeners=[listener]))
    requests.append(m.RemoveRaftVoterRequest(cluster_id=None, voter_id=-1))
    requests.append(m.UpdateRaftVoterRequest(cluster_id=None, voter_id=-1))
    return [
        b"".join(build_request(request, version, correlation_id=1, client_id="fuzz"))
        for request in requests
        for version in versions_of(ApiKey(request.API_KEY))
    ]


def damaged(rng: random.Random, whole: bytes) -> bytes:
    """A frame whose length is right and whose content is not. The epochs stay low: a vote for a
    later one would rightly end the leadership.
    """
    body = bytearray(whole[4:])
    if rng.random() < 0.5:
        del body[rng.randrange(4, len(body)) :]
    else:
        place = rng.randrange(8, len(body))
        packed = struct.pack(">i", rng.choice(LENGTHS[:4]))
        body[place : place + 4] = packed
    return struct.pack(">i", len(body)) + bytes(body)


@pytest.mark.parametrize("seed", range(4))
def test_bi_039_fuzz_damaged_requests_are_answered_or_refused(node: RunningNode, seed: int) -> None:
    rng, frames = random.Random(seed), corpus()
    for _ in range(200):
        with WireClient(controller_of(node)) as client:
            try:
                client.send_raw(damaged(rng, rng.choice(frames)))
                client.finish_sending()
                while not client.hangs_up():
                    pass
            except HungUpError:
                pass
