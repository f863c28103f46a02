"""Settings of groups and transactions, observed by members and producers."""

from contextlib import ExitStack

import pytest
from config.live.live_node import LiveNode, live_node
from config.live.second_broker import FIRST, SecondBroker
from config.live.topic_checks import HOUR_MS
from support.producer_talk import Conversation, wait_for_coordinator
from support.proofs import proves
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import commit, committed, find_coordinator
from system.transactions.committed_view import fetch_committed, stable_offset
from system.transactions.wire_producer import WireProducer

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

PLACE = ("watched", 0)
OLD_JOIN = 3
"""The last JoinGroup version in which a member joins without requesting an id first."""


def prepared(node: LiveNode, group: str = "g") -> None:
    wait_for(lambda: find_coordinator(node.client, group) == 0, "the coordinator")
    wait_for(lambda: commit(node.client, group, PLACE, 1) == 0, "the coordinator")


def joining(session_ms: int = 30_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10 * HOUR_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def wait_for_members(node: LiveNode, count: int) -> None:
    request = DescribeGroupsRequest(groups=["g"])
    wait_for(lambda: len(node.client.ask(request).groups[0].members) == count, "the members")


# Groups


@proves("group.initial.rebalance.delay.ms")
def test_an_empty_group_waits_for_more_members() -> None:
    with live_node({"group.initial.rebalance.delay.ms": "100000"}) as node:
        prepared(node)
        with WireClient(node.broker.bootstrap) as member:
            member.send(joining(HOUR_MS // 2), OLD_JOIN)
            wait_for_members(node, 1)
            node.assert_happens_after(100_000, member.has_answer)


@proves("group.min.session.timeout.ms", "group.max.session.timeout.ms")
def test_sessions_are_as_long_as_the_settings_allow() -> None:
    settings = {"group.min.session.timeout.ms": "8000", "group.max.session.timeout.ms": "9000"}
    with live_node(settings) as node:
        prepared(node)
        for session_ms in (7_999, 9_001):
            answer = node.client.ask(joining(session_ms), OLD_JOIN)
            assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert node.client.ask(joining(8_500), OLD_JOIN).error_code == 0


@proves("group.max.size")
def test_a_group_accepts_no_more_members_than_allowed() -> None:
    settings = {"group.max.size": "2", "group.initial.rebalance.delay.ms": str(HOUR_MS)}
    with live_node(settings) as node, ExitStack() as stack:
        members = [stack.enter_context(WireClient(node.broker.bootstrap)) for _ in range(3)]
        prepared(node)
        for member in members[:2]:
            member.send(joining(), OLD_JOIN)
        wait_for_members(node, 2)
        answer = members[2].ask(joining(), OLD_JOIN)
        assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def committing(group: str, note: str = "") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=note
    )
    topic = OffsetCommitRequestTopic(name="watched", partitions=[partition])
    return OffsetCommitRequest(group_id=group, topics=[topic])


@proves("offset.metadata.max.bytes")
def test_offset_metadata_is_no_longer_than_allowed() -> None:
    with live_node({"offset.metadata.max.bytes": "10"}) as node:
        prepared(node)
        for length, code in ((10, ErrorCode.NONE), (11, ErrorCode.OFFSET_METADATA_TOO_LARGE)):
            answer = node.client.ask(committing("g", "a" * length), 9)
            assert answer.topics[0].partitions[0].error_code == code


@proves("offsets.commit.timeout.ms")
def test_a_commit_waits_for_replicas_as_long_as_configured() -> None:
    """Both replicas are in sync, but the second broker never fetches."""
    settings = {
        "offsets.commit.timeout.ms": str(HOUR_MS),
        "offsets.topic.replication.factor": "2",
        "broker.session.timeout.ms": str(10**9),
    }
    with live_node(settings) as node, SecondBroker(node) as second:
        assert not second.heartbeat()
        groups = [f"g{number}" for number in range(20)]
        request = FindCoordinatorRequest(coordinator_keys=groups)
        wait_for(
            lambda: all(c.error_code == 0 for c in node.client.ask(request).coordinators), "them"
        )
        found = node.client.ask(request).coordinators
        group = next(each.key for each in found if each.node_id == FIRST)
        with WireClient(node.broker.bootstrap) as member:
            while True:
                member.send(committing(group), 9)
                node.assert_stays_false(lambda: False)
                if not member.has_answer():
                    break
                # The group is still loaded.
                member.receive_frame()
            node.assert_happens_after(HOUR_MS, member.has_answer)


@proves("offsets.retention.minutes")
def test_offsets_of_an_empty_group_are_kept_for_their_time() -> None:
    settings = {
        "offsets.retention.minutes": "600",
        "offsets.retention.check.interval.ms": "60000",
    }
    with live_node(settings) as node:
        prepared(node)
        node.assert_happens_after(10 * HOUR_MS, lambda: committed(node.client, "g") == (0, {}))


@proves("offsets.retention.check.interval.ms")
def test_old_offsets_are_removed_as_often_as_configured() -> None:
    settings = {
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": str(20 * HOUR_MS),
    }
    with live_node(settings) as node:
        prepared(node)
        node.assert_happens_after(20 * HOUR_MS, lambda: committed(node.client, "g") == (0, {}))


# Transactions


@proves("transaction.max.timeout.ms")
def test_transactions_take_no_longer_than_allowed() -> None:
    with live_node({"transaction.max.timeout.ms": "50000"}) as node:
        with WireProducer(node.broker.bootstrap, "t", timeout_ms=50_001) as producer:
            with pytest.raises(KafkaError) as refused:
                producer.init()
            assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        with WireProducer(node.broker.bootstrap, "t", timeout_ms=50_000) as producer:
            producer.init()


@proves("transaction.abort.timed.out.transaction.cleanup.interval.ms")
def test_overdue_transactions_are_checked_as_often_as_configured() -> None:
    name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with (
        live_node({name: str(HOUR_MS)}) as node,
        WireProducer(node.broker.bootstrap, "t", timeout_ms=1_000) as producer,
    ):
        producer.init().send(PLACE, b"a")

        def is_over() -> bool:
            fetched = fetch_committed(node.client, PLACE, stable_offset(node.client, PLACE))
            return fetched.last_stable_offset == fetched.high_watermark

        node.assert_happens_after(HOUR_MS, is_over)


EXPIRY = "transactional.id.expiration.ms"
EXPIRY_CHECK = "transaction.remove.expired.transaction.cleanup.interval.ms"


@pytest.mark.parametrize("waits_for", [EXPIRY, EXPIRY_CHECK])
@proves(EXPIRY, EXPIRY_CHECK)
def test_transactional_ids_are_kept_for_their_time(waits_for: str) -> None:
    settings = {EXPIRY: "60000", EXPIRY_CHECK: "60000"} | {waits_for: str(20 * HOUR_MS)}
    with live_node(settings) as node:
        with WireProducer(node.broker.bootstrap, "t") as producer:
            producer.init()
        request = DescribeTransactionsRequest(transactional_ids=["t"])

        def is_gone() -> bool:
            (state,) = node.client.ask(request).transaction_states
            return bool(state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

        node.assert_happens_after(20 * HOUR_MS, is_gone)


@pytest.mark.parametrize(
    ("enabled", "expected"), [("true", "TRANSACTION_ABORTABLE"), ("false", "NONE@0")]
)
@proves("transaction.partition.verification.enable")
def test_partitions_are_verified_unless_disabled(enabled: str, expected: str) -> None:
    with live_node({"transaction.partition.verification.enable": enabled}) as node:
        wait_for_coordinator(node.broker.bootstrap)
        conversation = Conversation(node.broker.bootstrap)
        try:
            conversation.say("a inits")
            assert conversation.say("a writes t-0=x").endswith(expected)
        finally:
            conversation.close()
