"""The transaction coordinator of a whole node, over the network, in the versions of its clients:
permissions, state after a restart, expiry.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker.transaction_node import (
    BROKERS_ADD,
    OLD_ADD,
    OLD_END,
    PATIENCE_S,
    TransactionNode,
    transaction_node,
)
from support.proofs import proves

from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from moldau.core.transactions.states import TransactionState
from moldau.net.request_channel import ChannelError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.types import TopicPartition

S = TransactionState
NONE = ErrorCode.NONE


# InitProducerId


async def test_every_version_begins(tmp_path: Path) -> None:
    seen: set[int] = set()
    async with transaction_node(tmp_path) as node:
        for version in range(6):
            first = await node.init(f"id-{version}", version=version)
            again = await node.init(f"id-{version}", version=version)
            plain = await node.init(None, version=version)
            assert (first.error_code, first.producer_epoch) == (0, 0)
            assert (again.producer_id, again.producer_epoch) == (first.producer_id, 1)
            assert (plain.error_code, plain.producer_epoch) == (0, 0)
            seen |= {first.producer_id, plain.producer_id}
    assert len(seen) == 2 * 6


INITS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"name": None, "producer_id": 3, "producer_epoch": 1}, NONE),
    ({"name": None, "producer_id": 3}, ErrorCode.INVALID_REQUEST),
    ({"name": None, "producer_epoch": 3}, ErrorCode.INVALID_REQUEST),
    ({"name": "a", "producer_epoch": 3}, ErrorCode.INVALID_REQUEST),
    ({"name": ""}, ErrorCode.INVALID_REQUEST),
    ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ({"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ({"timeout_ms": 50_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ({"timeout_ms": 50_000}, NONE),
]


async def test_a_valid_request_for_a_producer_id_gets_one(tmp_path: Path) -> None:
    async with transaction_node(tmp_path, transaction_max_timeout_ms="50000") as node:
        for fields, code in INITS:
            answer = await node.init(**({"timeout_ms": 1_000} | fields))
            assert answer.error_code == code, fields
            if code:
                assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


async def test_a_fenced_producer_gets_the_error_code_of_its_version(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        producer_id, epoch = await node.begun()
        await node.begun()
        for version, code in (
            (3, ErrorCode.INVALID_PRODUCER_EPOCH),
            (4, ErrorCode.PRODUCER_FENCED),
            (5, ErrorCode.PRODUCER_FENCED),
        ):
            answer = await node.init(version=version, producer_id=producer_id, producer_epoch=epoch)
            assert answer.error_code == code
        old = (producer_id, epoch)
        for version in range(6):
            is_known = version >= 2
            code = ErrorCode.PRODUCER_FENCED if is_known else ErrorCode.INVALID_PRODUCER_EPOCH
            assert (await node.end(old, commits=True, version=version)).error_code == code
        for version in range(BROKERS_ADD + 1):
            is_known = version >= 2
            code = ErrorCode.PRODUCER_FENCED if is_known else ErrorCode.INVALID_PRODUCER_EPOCH
            assert await node.add(old, 0, version=version) == {0: code}
        for version in range(5):
            is_known = version >= 2
            code = ErrorCode.PRODUCER_FENCED if is_known else ErrorCode.INVALID_PRODUCER_EPOCH
            request = AddOffsetsToTxnRequest(
                transactional_id="a", producer_id=producer_id, producer_epoch=epoch, group_id="g"
            )
            assert (await node.ask(request, version)).error_code == code


async def test_a_producer_continues_with_the_next_epoch(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        producer_id, epoch = await node.begun()
        for _ in range(2):
            answer = await node.init(producer_id=producer_id, producer_epoch=epoch)
            assert (answer.producer_id, answer.producer_epoch) == (producer_id, epoch + 1)


async def test_two_phase_commit_is_not_served_unless_it_is_enabled(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        answer = await node.ask(ApiVersionsRequest(), 0)
        served = {each.api_key: each for each in answer.api_keys}
        assert served[ApiKey.INIT_PRODUCER_ID].max_version == 5
        with pytest.raises(ChannelError):
            await node.init(version=6)


@proves("unstable.api.versions.enable", "transaction.two.phase.commit.enable")
@pytest.mark.parametrize("is_enabled", [True, False])
async def test_unstable_versions_follow_kafkas_rules(is_enabled: bool, tmp_path: Path) -> None:
    settings = {
        "unstable_api_versions_enable": "true",
        "transaction_two_phase_commit_enable": str(is_enabled).lower(),
    }
    async with transaction_node(tmp_path, **settings) as node:
        answer = await node.init(version=6, enable2_pc=True, timeout_ms=0)
        if is_enabled:
            assert answer.error_code == 0
            assert node.known().timeout_ms == 2**31 - 1
        else:
            assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        kept = await node.init(version=6, keep_prepared_txn=True)
        assert kept.error_code == ErrorCode.UNSUPPORTED_VERSION


# AddPartitionsToTxn, AddOffsetsToTxn


async def test_partitions_are_added_in_every_version(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        for version in range(6):
            me = await node.begun()
            assert await node.add(me, 0, 2, version=version) == {0: NONE, 2: NONE}
            assert node.known().state is S.ONGOING
            assert node.known().partitions == {TopicPartition("t", 0), TopicPartition("t", 2)}
            assert node.known().client_version == (2 if version >= 4 else 0)


async def test_one_unknown_partition_keeps_the_others_out(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        me = await node.begun()
        for version in (OLD_ADD, BROKERS_ADD):
            assert await node.add(me, 0, 9, version=version) == {
                0: ErrorCode.OPERATION_NOT_ATTEMPTED,
                9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
        unknown = await node.add(me, 0, topic="nowhere")
        assert unknown == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert node.known().state is S.EMPTY


async def test_clients_may_not_add_internal_topics(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        me = await node.begun()
        for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS):
            refused = await node.add(me, 0, topic=topic)
            assert refused == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        # Brokers do, for the offsets of groups.
        assert await node.add(me, 0, topic=TRANSACTION_STATE, version=BROKERS_ADD) == {0: NONE}


async def test_a_broker_verifies_many_transactions_at_once(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        producers = {name: await node.begun(name) for name in ("a", "b", "c")}
        topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]

        def requested(name: str, **fields: Any) -> AddPartitionsToTxnTransaction:
            producer_id, epoch = producers.get(name, (1, 0))
            return AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=topics,
                **fields,
            )

        transactions = [
            requested("a"),
            requested("b", verify_only=True),
            requested("c"),
            requested("?"),
            requested(""),
        ]
        request = AddPartitionsToTxnRequest(transactions=transactions)
        answer = await node.ask(request, BROKERS_ADD)
        assert {
            each.transactional_id: {
                one.partition_error_code
                for topic in each.topic_results
                for one in topic.results_by_partition
            }
            for each in answer.results_by_transaction
        } == {
            "a": {NONE},
            "b": {ErrorCode.TRANSACTION_ABORTABLE},
            "c": {NONE},
            "?": {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
            "": {ErrorCode.INVALID_REQUEST},
        }
        assert [node.known(name).state for name in "abc"] == [S.ONGOING, S.EMPTY, S.ONGOING]


async def test_verification_changes_nothing(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        me = await node.begun()
        await node.add(me, 0)
        before = node.known()
        assert await node.add(me, 0, 1, version=BROKERS_ADD, verify=True) == {
            0: NONE,
            1: ErrorCode.TRANSACTION_ABORTABLE,
        }
        assert node.known() is before


async def test_offsets_are_a_partition_of_the_groups_topic(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        await node.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        index = node.node.services.groups.partition_for("g")
        for version in range(5):
            me = await node.begun()
            request = AddOffsetsToTxnRequest(
                transactional_id="a", producer_id=me[0], producer_epoch=me[1], group_id="g"
            )
            assert (await node.ask(request, version)).error_code == 0
            assert node.known().partitions == {TopicPartition(CONSUMER_OFFSETS, index)}
            assert (await node.end(me, commits=True, version=OLD_END)).error_code == 0
            await node.completed()


# EndTxn


@pytest.mark.parametrize("commits", [True, False])
async def test_every_version_ends_a_transaction(commits: bool, tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        for version in range(6):
            me = await node.begun()
            await node.add(me, 0, 1)
            assert await node.write(me, 0, b"x") is NONE
            assert node.stable_offset(0) == 2 * version
            answer = await node.end(me, commits=commits, version=version)
            assert answer.error_code == 0
            expected = (me[0], me[1] + 1) if version >= 5 else (-1, -1)
            assert (answer.producer_id, answer.producer_epoch) == expected
            done = await node.completed()
            assert done.state is (S.COMPLETE_COMMIT if commits else S.COMPLETE_ABORT)
            # A marker for each partition, also for the one that nothing was written to.
            ends = [node.end_offset(index) for index in (0, 1, 2)]
            assert ends == [2 * version + 2, version + 1, 0]
            assert [node.stable_offset(index) for index in (0, 1, 2)] == ends
            # The same end again: from version 5 on with the epoch of the first request.
            again = await node.end(me, commits=commits, version=version)
            assert again.error_code == 0
            assert (again.producer_id, again.producer_epoch) == expected


async def test_an_unknown_id_cannot_end(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        answer = await node.end((1, 0), commits=True, name="missing")
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        empty = await node.ask(EndTxnRequest(transactional_id="", producer_id=1, committed=True), 5)
        assert empty.error_code == ErrorCode.INVALID_REQUEST


async def test_requests_while_markers_are_written_get_a_retriable_error(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        me = await node.begun()
        await node.add(me, 0)
        node.holds_markers = True
        answer = await node.end(me, commits=True)
        assert answer.error_code == 0
        mine = (answer.producer_id, answer.producer_epoch)
        coming = ErrorCode.CONCURRENT_TRANSACTIONS
        assert (await node.init()).error_code == coming
        assert await node.add(mine, 1) == {1: coming}
        assert await node.add(mine, 1, version=BROKERS_ADD) == {1: coming}
        assert await node.add(mine, 1, version=BROKERS_ADD, verify=True) == {1: coming}
        assert (await node.end(me, commits=True)).error_code == coming
        assert node.known().state is S.PREPARE_COMMIT
        node.holds_markers = False
        await node.completed()
        assert await node.add(mine, 1, version=BROKERS_ADD) == {1: NONE}


async def test_transactions_begin_and_end_side_by_side(tmp_path: Path) -> None:
    async def run(node: TransactionNode, name: str) -> None:
        me = await node.begun(name)
        for number in range(20):
            async with asyncio.timeout(PATIENCE_S):
                while (await node.add(me, 0, 1, 2, name=name, version=BROKERS_ADD))[0]:
                    pass
            answer = await node.end(me, commits=number % 2 == 0, name=name)
            assert answer.error_code == 0
            me = (answer.producer_id, answer.producer_epoch)
        assert me[1] == 20

    async with transaction_node(tmp_path) as node:
        await asyncio.gather(*(run(node, f"id-{number}") for number in range(20)))
        for number in range(20):
            await node.completed(f"id-{number}")
        assert node.end_offset(0) == 20 * 20


# FindCoordinator


async def test_the_coordinator_is_found(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        here = (0, node.node.config.node_id, node.node.client_port)
        for version in (1, 2, 3):
            answer = await node.ask(FindCoordinatorRequest(key_type=1, key="a"), version)
            assert (answer.error_code, answer.node_id, answer.port) == here
        for version in (4, 5, 6):
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
            answer = await node.ask(request, version)
            found = [(each.error_code, each.node_id, each.port) for each in answer.coordinators]
            assert found == [here, here]


async def test_its_topic_follows_the_settings(tmp_path: Path) -> None:
    settings = {"transaction_state_log_segment_bytes": str(1 << 20)}
    async with transaction_node(tmp_path, **settings) as node:
        image = node.node.services.image
        topic = image.topic(TRANSACTION_STATE)
        assert topic is not None
        assert len(topic.partitions) == 4
        log = node.node.services.replicas.lookup(TRANSACTION_STATE, 0).log
        assert log.config.segment_bytes == 1 << 20
        assert log.config.cleanup_policy == ("compact",)
        assert log.config.compression_type == "uncompressed"
