from pathlib import Path

import pytest
from broker.controller_bench import bench

from moldau.broker.controller.controller_node import VOTER_CHANGES
from moldau.broker.controller_handlers.decided import handle_decided
from moldau.broker.controller_handlers.table import CONTROLLER_HANDLERS
from moldau.broker.handlers.forwarded import handle_forwarded
from moldau.broker.handlers.table import HANDLERS
from moldau.core.controller.decisions import DECISIONS, decision_of
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


def quorum_of(topic: str, *partitions: int) -> DescribeQuorumRequest:
    requested = [DescribeQuorumRequestPartitionData(partition_index=index) for index in partitions]
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequestTopicData(topic_name=topic, partitions=requested)]
    )


async def test_topics_live_through_the_brokers_listener(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        for version in range(2, 8):
            made = await node.serve(CreateTopicsRequest(topics=[topic]), version)
            assert made.topics[0].error_code == ErrorCode.NONE
            more = CreatePartitionsTopic(name="t", count=3, assignments=None)
            grown = await node.serve(CreatePartitionsRequest(topics=[more], timeout_ms=30_000))
            assert grown.results[0].error_code == ErrorCode.NONE
            assert len(node.image.topics["t"].partitions) == 3
            elected = await node.serve(ElectLeadersRequest(topic_partitions=None))
            (result,) = elected.replica_election_results
            assert (result.topic, result.partition_result) == ("t", [])
            gone = await node.serve(
                DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=30_000)
            )
            assert gone.responses[0].error_code == ErrorCode.NONE
            assert not node.image.topics
        node.check()


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
async def test_the_quorum_is_described(tmp_path: Path, listener: str) -> None:
    async with bench(tmp_path / "data") as node:
        for version in range(3):
            requested = quorum_of("__cluster_metadata", 0)
            told = await node.serve(requested, version, listener=listener)
            (partition,) = told.topics[0].partitions
            assert (told.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
            (voter,) = partition.current_voters
            assert (voter.replica_id, partition.observers) == (1, [])
            assert voter.log_end_offset >= partition.high_watermark > 0
            assert len(told.nodes) == (version == 2)
        wrong = await node.serve(quorum_of("t", 0, 1), listener=listener)
        assert [each.error_code for each in wrong.topics[0].partitions] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ] * 2


async def test_features_are_updated(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        down = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        told = await node.serve(UpdateFeaturesRequest(feature_updates=[down]))
        assert told.error_code == ErrorCode.NONE
        assert "group.version" not in node.image.features


def test_the_tables_agree_with_the_decisions() -> None:
    decided = {key for key, load in CONTROLLER_HANDLERS.items() if load() is handle_decided}
    forwarded = {key for key, load in HANDLERS.items() if load() is handle_forwarded}
    assert decided == set(DECISIONS) | {ApiKey.DESCRIBE_QUORUM}
    assert forwarded <= decided | VOTER_CHANGES
    assert all(callable(decision_of(api_key)) for api_key in DECISIONS)
