"""Groups of kinds that are not coordinated here are kept, and listed with their kind."""

import pytest
from core.groups.bench import Bench, listed_groups
from core.groups.scenario import Scenario

from moldau.core.coordinator.records import CoordinatorRecord, encode_record
from moldau.core.groups.foreign_group import ForeignGroup
from moldau.core.groups.group_records import UNREAD, decode_group_record, offset_record
from moldau.core.groups.listing import (
    GroupFilter,
    count_groups,
    count_members,
    describe_group,
)
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import group_key_class
from moldau.protocol.log_records.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from moldau.protocol.log_records.consumer_group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from moldau.protocol.log_records.offset_commit import OffsetCommitValue
from moldau.protocol.log_records.share_group_metadata import (
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.types import Offset

CONSUMER_GROUP = CoordinatorRecord(
    ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=4)
)
MEMBER_KEY = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
MEMBER = CoordinatorRecord(MEMBER_KEY, ConsumerGroupMemberMetadataValue(client_id="c"))
SHARE_GROUP = CoordinatorRecord(
    ShareGroupMetadataKey(group_id="g"), ShareGroupMetadataValue(epoch=1)
)
OFFSET = offset_record("g", "t", 0, OffsetCommitValue(offset=9, commit_timestamp=1))


def with_log(*records: CoordinatorRecord) -> Scenario:
    scenario = Scenario()
    scenario.bench.log = [encode_record(record) for record in records]
    scenario.bench.load()
    return scenario


def listed(bench: Bench) -> list[tuple[str, str, str, str]]:
    return [
        (g.group_id, g.group_type, g.group_state, g.protocol_type)
        for g in listed_groups(bench.shard.registry)
    ]


def happened(scenario: Scenario, *actions: str) -> list[str]:
    scenario.lines = []
    for action in actions:
        scenario.run(action)
    return scenario.lines


def test_a_foreign_group_is_listed_and_its_offsets_are_served() -> None:
    scenario = with_log(CONSUMER_GROUP, MEMBER, OFFSET)
    assert listed(scenario.bench) == [("g", "consumer", "Unknown", "consumer")]
    assert happened(scenario, "a fetches t-0") == ["a fetched t-0=9"]
    described = describe_group(scenario.bench.shard.registry, "g", 6)
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described.group_state == "Dead"


def test_clients_cannot_join_or_commit_past_its_members() -> None:
    scenario = with_log(CONSUMER_GROUP, MEMBER, OFFSET)
    assert happened(
        scenario, "a joins", "a syncs", "a beats", "a leaves", "a commits t-0=3", "after 700000000"
    ) == [
        "a joins: INCONSISTENT_GROUP_PROTOCOL",
        "a syncs: UNKNOWN_MEMBER_ID",
        "a beats: UNKNOWN_MEMBER_ID",
        "a left: UNKNOWN_MEMBER_ID",
        "a commits: UNKNOWN_MEMBER_ID",
    ]
    assert len(scenario.bench.log) == 3, "no record was added"


def test_an_empty_foreign_group_is_replaced_by_a_classic_group() -> None:
    gone = CoordinatorRecord(MEMBER_KEY)
    scenario = with_log(CONSUMER_GROUP, MEMBER, OFFSET, gone)
    assert listed(scenario.bench) == [("g", "consumer", "Empty", "consumer")]
    assert happened(scenario, "a commits t-0=10", "a joins", "restart", "a fetches t-0") == [
        "a committed: NONE",
        "a joins: MEMBER_ID_REQUIRED",
        "a fetched t-0=10",
    ]
    assert listed(scenario.bench) == [("g", "classic", "Empty", "")]


def test_an_empty_foreign_group_expires_and_can_be_deleted() -> None:
    scenario = with_log(CONSUMER_GROUP, OFFSET)
    decision = scenario.bench.shard.decide_delete_groups(["g"])
    assert [r.error_code for r in decision.response] == [ErrorCode.NONE]
    assert len(decision.records) == 2
    happened(scenario, "after 700000000")
    assert listed(scenario.bench) == []
    scenario.bench.load()
    assert listed(scenario.bench) == []


def test_a_share_group_is_never_removed() -> None:
    scenario = with_log(SHARE_GROUP)
    assert happened(scenario, "a joins", "after 700000000") == [
        "a joins: INCONSISTENT_GROUP_PROTOCOL"
    ]
    assert listed(scenario.bench) == [("g", "share", "Empty", "share")]
    decision = scenario.bench.shard.decide_delete_groups(["g"])
    assert [r.error_code for r in decision.response] == [ErrorCode.UNSUPPORTED_VERSION]


def test_offsets_outlive_the_group_that_they_were_committed_by() -> None:
    scenario = with_log(CONSUMER_GROUP, OFFSET, CoordinatorRecord(CONSUMER_GROUP.key))
    assert listed(scenario.bench) == [("g", "classic", "Empty", "")]
    assert happened(scenario, "a fetches t-0") == ["a fetched t-0=9"]


@pytest.mark.parametrize("record_type", [3, 4, 5, 6, 7, 8, *range(10, 18), *range(19, 24)])
def test_records_of_every_type_belong_to_a_group_with_any_value(record_type: int) -> None:
    key_class = group_key_class(record_type)
    names = [row[0] for row in key_class.FIELDS]
    key = key_class(**dict.fromkeys(names, "g"))
    pair = encode_record(CoordinatorRecord(key))
    record = decode_group_record(pair.key, b"\x7f\xffwritten by a later release")
    assert record is not None
    assert record.value is UNREAD
    bench = Bench()
    bench.shard.replay(record, Offset(0))
    assert isinstance(bench.shard.registry.get("g"), ForeignGroup)
    bench.shard.replay(CoordinatorRecord(key), Offset(1))
    assert bench.shard.registry.get("g") is None


def test_a_transaction_commits_past_no_member_of_a_foreign_group() -> None:
    share = with_log(SHARE_GROUP)
    assert happened(share, "a commits txn=7 t-0=3") == ["a commits: GROUP_ID_NOT_FOUND"]
    scenario = with_log(CONSUMER_GROUP, MEMBER)
    assert happened(
        scenario,
        "a commits txn=7 t-0=3",
        "a commits txn=7 generation=4 t-0=3",
        "transaction 7 commits",
        "a fetches t-0",
    ) == [
        "a committed: NONE",
        "a commits: UNKNOWN_MEMBER_ID",
        "a fetched t-0=3",
    ]


def test_a_foreign_group_with_members_keeps_its_offsets_and_itself() -> None:
    scenario = with_log(CONSUMER_GROUP, MEMBER, OFFSET)
    shard = scenario.bench.shard
    decision = shard.decide_delete_groups(["g"])
    assert [r.error_code for r in decision.response] == [ErrorCode.NON_EMPTY_GROUP]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition()])]
    request = OffsetDeleteRequest(group_id="g", topics=topics)
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        shard.offsets.decide_delete(request)
    assert happened(scenario, "a fetches t-0") == ["a fetched t-0=9"]


def test_groups_are_listed_by_state_and_by_kind() -> None:
    scenario = with_log(CONSUMER_GROUP, MEMBER, OFFSET)
    happened(scenario, "b joins group=h", "b joins")
    registry = scenario.bench.shard.registry

    def found(*, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        chosen = GroupFilter(states, types)
        return sorted(each.group_id for group in registry if (each := chosen.listed(group)))

    assert found() == ["g", "h"]
    assert found(types=("Classic",)) == ["h"]
    assert found(types=(" consumer ",)) == ["g"]
    assert found(states=("preparingrebalance",)) == ["h"]
    assert found(states=("Empty", "Dead")) == []
    assert count_groups(registry) == {"Unknown": 1, "PreparingRebalance": 1}
    assert count_members(registry) == 2


def test_a_tombstone_of_an_unknown_group_changes_nothing() -> None:
    bench = Bench()
    bench.shard.replay(CoordinatorRecord(CONSUMER_GROUP.key), Offset(0))
    assert listed(bench) == []


def test_to_an_old_client_a_foreign_group_is_dead() -> None:
    registry = with_log(CONSUMER_GROUP, MEMBER).bench.shard.registry
    described = describe_group(registry, "g", 5)
    assert (described.group_state, described.error_code) == ("Dead", ErrorCode.NONE)
