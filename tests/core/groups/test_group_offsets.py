"""Offsets: permitted deletions, and the offsets of deleted topics."""

import pytest
from core.groups.scenario import Scenario

from moldau.core.groups.group_records import offset_record
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records.offset_commit import OffsetCommitValue
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.types import Uuid

OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)


def stable_group(*options: str) -> Scenario:
    scenario = Scenario()
    joins = " ".join(["a joins v=3", *options])
    kind = next((o for o in options if o.startswith("type=")), "")
    for line in (
        "settings initial_rebalance_delay_ms=0",
        joins,
        "after 0",
        f"a syncs a=1 {kind}",
        "a commits t-0=5 u-0=6",
    ):
        scenario.run(line)
    return scenario


def delete(scenario: Scenario, *topics: str) -> dict[str, int]:
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in topics
        ],
    )
    decision = scenario.bench.shard.offsets.decide_delete(request)
    scenario.bench.write(list(decision.records))
    return {t.name: t.partitions[0].error_code for t in decision.response.topics}


def test_only_offsets_that_no_consumer_is_subscribed_to_can_be_deleted() -> None:
    scenario = stable_group("topics=t")
    assert delete(scenario, "t", "u", "v") == {
        "t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        "u": ErrorCode.NONE,
        "v": ErrorCode.NONE,
    }
    assert [str(place) for _, place, _ in scenario.bench.shard.store] == ["t-0"]


def test_members_of_other_kinds_keep_all_of_theirs() -> None:
    scenario = stable_group("type=connect")
    with pytest.raises(KafkaError) as refusal:
        delete(scenario, "u")
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP


def test_any_offset_of_an_empty_group_can_be_deleted() -> None:
    scenario = stable_group("topics=t")
    scenario.run("a leaves")
    assert delete(scenario, "t", "u") == {"t": ErrorCode.NONE, "u": ErrorCode.NONE}
    assert len(scenario.bench.shard.store) == 0
    with pytest.raises(KafkaError) as refusal:
        scenario.bench.shard.offsets.decide_delete(OffsetDeleteRequest(group_id="missing"))
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_recreated_topic_neither_inherits_nor_loses_offsets() -> None:
    scenario = Scenario()
    bench = scenario.bench
    of_old = OffsetCommitValue(offset=5, commit_timestamp=1, topic_id=OLD)
    of_new = OffsetCommitValue(offset=7, commit_timestamp=1, topic_id=NEW)
    unknown = OffsetCommitValue(offset=9, commit_timestamp=1)
    bench.write(
        [
            offset_record("g", "t", 0, of_old),
            offset_record("g", "t", 1, of_new),
            offset_record("g", "t", 2, unknown),
        ]
    )
    topic = OffsetFetchRequestTopics(name="t", topic_id=NEW, partition_indexes=[0, 1, 2])
    request = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    (fetched,) = bench.shard.offsets.fetch(request, requires_stable=True).response.topics
    assert [p.committed_offset for p in fetched.partitions] == [-1, 7, 9]
    turn = bench.turn()
    bench.shard.decide_topics_deleted([("t", OLD)], turn)
    bench.perform(turn)
    assert [place.partition for _, place, _ in bench.shard.store] == [1]
