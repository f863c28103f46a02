"""Requests that name very many things, or the same again and again: repetitions are answered once,
and other clients are served while a large request is processed.
"""

from collections.abc import Callable, Iterator

import pytest
from support.running_node import QUICK_SETTINGS, RunningNode
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from moldau.protocol.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
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
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.wire.schema import Message

PARTITIONS = 20
MANY = 20_000
OTHERS_MEANWHILE = 3
ATTEMPTS = 10
OFFSET_FETCH_VERSION = 9


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("large-requests")
    with RunningNode(folder, QUICK_SETTINGS | {"node.id": "1"}) as node:
        node.start()
        create_topic(node.address, "orders", PARTITIONS)
        with WireClient(node.address) as client:
            wait_for(lambda: commits(client, "g"), "a commit")
        yield node.address
        node.stop()
        assert "Traceback" not in node.errors


def commits(client: WireClient, group: str) -> bool:
    client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index)
        for index in range(PARTITIONS)
    ]
    topic = OffsetCommitRequestTopic(name="orders", partitions=offsets)
    answer = client.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 9)
    return all(each.error_code == ErrorCode.NONE for each in answer.topics[0].partitions)


# Repetitions


def test_settings_of_a_resource_are_described_once(address: str) -> None:
    broker = DescribeConfigsResource(resource_type=ConfigResourceType.BROKER, resource_name="1")
    with WireClient(address) as client:
        request = DescribeConfigsRequest(
            resources=[broker] * 1_700, include_synonyms=True, include_documentation=True
        )
        (result,) = client.ask(request).results
    assert result.error_code == ErrorCode.NONE
    assert "num.partitions" in {row.name for row in result.configs}


def test_settings_requested_by_name_are_described_for_each_request(address: str) -> None:
    names = ("num.partitions", "log.dirs")
    requested = [
        DescribeConfigsResource(
            resource_type=ConfigResourceType.BROKER, resource_name="1", configuration_keys=[name]
        )
        for name in names * 3
    ]
    with WireClient(address) as client:
        results = client.ask(DescribeConfigsRequest(resources=requested)).results
    assert [[row.name for row in result.configs] for result in results] == [[n] for n in names]


def test_all_offsets_of_a_group_are_returned_once(address: str) -> None:
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    one = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[3])]
    )
    with WireClient(address) as client:
        request = OffsetFetchRequest(groups=[everything] * 30_000 + [one])
        groups = client.ask(request, OFFSET_FETCH_VERSION).groups
    told = [[p.committed_offset for p in group.topics[0].partitions] for group in groups]
    assert told == [list(range(PARTITIONS)), [3]]


def test_of_a_partition_that_is_committed_again_and_again_the_last_offset_counts(
    address: str,
) -> None:
    """Every partition is answered; one record is written."""
    places = [
        OffsetCommitRequestPartition(partition_index=index % 2, committed_offset=index)
        for index in range(40_000)
    ]
    topic = OffsetCommitRequestTopic(name="orders", partitions=places)
    with WireClient(address) as client:
        answer = client.ask(OffsetCommitRequest(group_id="again", topics=[topic]), 9)
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [ErrorCode.NONE] * len(places)
        everything = OffsetFetchRequestGroup(group_id="again", topics=None)
        answer = client.ask(OffsetFetchRequest(groups=[everything]), OFFSET_FETCH_VERSION)
    (told,) = answer.groups[0].topics
    assert [each.committed_offset for each in told.partitions] == [39_998, 39_999]


def test_a_group_is_described_as_often_as_it_is_named(address: str) -> None:
    with WireClient(address) as client:
        groups = client.ask(DescribeGroupsRequest(groups=["g", "h"] * 500)).groups
    assert [group.group_id for group in groups] == ["g", "h"] * 500


def test_groups_that_would_be_described_too_often_are_refused(address: str) -> None:
    """A request of some kilobytes whose response would have 200 MB."""
    protocol = JoinGroupRequestProtocol(name="p", metadata=bytes(100_000))
    join = JoinGroupRequest(
        group_id="big",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="x",
        protocols=[protocol],
    )
    with WireClient(address) as client:
        joined = client.ask(join, 3)
        assert joined.error_code == ErrorCode.NONE
        sync = SyncGroupRequest(
            group_id="big", generation_id=joined.generation_id, member_id=joined.member_id
        )
        assert client.ask(sync, 3).error_code == ErrorCode.NONE
        (described,) = client.ask(DescribeGroupsRequest(groups=["big"])).groups
        assert described.group_state == "Stable"
        groups = client.ask(DescribeGroupsRequest(groups=["big"] * 2_000)).groups
    assert {group.error_code for group in groups} == {ErrorCode.INVALID_REQUEST}


def test_transactions_and_producers_are_described_once(address: str) -> None:
    with WireClient(address) as client:
        request: Message = DescribeTransactionsRequest(transactional_ids=["t", "u"] * 500)
        states = client.ask(request).transaction_states
        assert [state.transactional_id for state in states] == ["t", "u"]
        request = DescribeProducersRequest(
            topics=[TopicRequest(name="orders", partition_indexes=[0, 1] * 500)] * 2
        )
        (topic,) = client.ask(request).topics
        assert [each.partition_index for each in topic.partitions] == [0, 1]


def test_an_answer_that_would_be_too_large_is_refused(address: str) -> None:
    """A group that does not exist has settings, and the longest texts are documentation."""
    requested = [
        DescribeConfigsResource(resource_type=ConfigResourceType.GROUP, resource_name=str(number))
        for number in range(20_000)
    ]
    with WireClient(address) as client:
        request = DescribeConfigsRequest(
            resources=requested, include_synonyms=True, include_documentation=True
        )
        results = client.ask(request).results
    assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}


# Large requests


NAMES = [f"name-{number}" for number in range(MANY)]


def describe_configs() -> Message:
    group = ConfigResourceType.GROUP
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=group, resource_name=name)
            for name in NAMES[:6_000]
        ]
    )


def describe_producers() -> Message:
    requested = TopicRequest(name="orders", partition_indexes=list(range(MANY)))
    return DescribeProducersRequest(topics=[requested])


def list_offsets() -> Message:
    requested = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(MANY)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=requested)])


def offsets_for_epochs() -> Message:
    requested = [OffsetForLeaderPartition(partition=index) for index in range(MANY)]
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="orders", partitions=requested)]
    )


def create_topics() -> Message:
    configs = [CreatableTopicConfig(name="retention.ms", value="1000")]
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
            for name in NAMES[:3_000]
        ],
        validate_only=True,
    )


def alter_configs() -> Message:
    configs = [AlterableConfig(name="retention.ms", value="1000")]
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=ConfigResourceType.TOPIC, resource_name=name, configs=configs
            )
            for name in NAMES[:5_000]
        ]
    )


def delete_records() -> Message:
    requested = [DeleteRecordsPartition(partition_index=index, offset=0) for index in range(MANY)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="missing", partitions=requested)])


def alter_replica_log_dirs() -> Message:
    requested = AlterReplicaLogDirTopic(name="missing", partitions=list(range(MANY)))
    return AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/nowhere", topics=[requested])]
    )


LARGE: dict[str, Callable[[], Message]] = {
    "FindCoordinator": lambda: FindCoordinatorRequest(coordinator_keys=NAMES),
    "DescribeGroups": lambda: DescribeGroupsRequest(groups=NAMES),
    "DescribeTransactions": lambda: DescribeTransactionsRequest(transactional_ids=NAMES),
    "DescribeConfigs": describe_configs,
    "DescribeProducers": describe_producers,
    "ListOffsets": list_offsets,
    "OffsetForLeaderEpoch": offsets_for_epochs,
    "DescribeTopicPartitions": lambda: DescribeTopicPartitionsRequest(
        topics=[DescribedTopic(name=name) for name in NAMES]
    ),
    "DeleteRecords": delete_records,
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "CreateTopics": create_topics,
    "IncrementalAlterConfigs": alter_configs,
}


@pytest.mark.parametrize("api", LARGE)
def test_others_are_served_while_a_large_request_is_worked_on(address: str, api: str) -> None:
    request = LARGE[api]()
    served = 0
    with WireClient(address) as large, WireClient(address) as other:
        other.ask(ApiVersionsRequest())
        large.send(request)
        while not large.has_answer():
            other.ask(ApiVersionsRequest())
            served += 1
        large.receive_frame()
    assert served >= OTHERS_MEANWHILE


def test_many_offsets_are_returned_as_of_the_request(address: str) -> None:
    """The offsets of a large group are read in slices, and none is lost between them."""
    indexes = [index % (2 * PARTITIONS) for index in range(MANY)]
    requested = OffsetFetchRequestTopics(name="orders", partition_indexes=indexes)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[requested])])
    served: list[int] = []
    with WireClient(address) as large, WireClient(address) as other:
        # A busy machine may run the node alone for a while.
        while max(served, default=0) < OTHERS_MEANWHILE and len(served) < ATTEMPTS:
            served.append(0)
            large.send(request, OFFSET_FETCH_VERSION)
            while not large.has_answer():
                other.ask(ApiVersionsRequest())
                served[-1] += 1
            _, answer = large.receive(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION)
            (topic,) = answer.groups[0].topics
            assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [
                (index, index if index < PARTITIONS else -1) for index in indexes
            ]
    assert max(served) >= OTHERS_MEANWHILE, served
