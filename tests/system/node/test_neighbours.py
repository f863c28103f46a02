"""A failing request is answered individually; concurrent requests of other clients are served as if
it had never come.
"""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from broker.group_node import running_groups
from support.running_node import QUICK_SETTINGS, RunningNode, freeze
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic

from moldau.broker.server.deadlines import Deadlines
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.net.clock import Clock
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

FOR_EVER_MS = (1 << 63) - 1


def commit(group: str, topic: str, **fields: Any) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    return OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        **fields,
    )


def has_coordinator(client: WireClient, group: str) -> bool:
    (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators
    return bool(found.error_code == 0)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_offset_that_is_kept_for_ever_is_committed_beside_others(
    tmp_path: Path, version: int
) -> None:
    """Both commits are read in the same turn of the loop: the node stands still until they are
    sent, and has one partition for all groups.
    """
    settings = QUICK_SETTINGS | {"offsets.topic.num.partitions": "1"}
    with RunningNode(tmp_path, settings) as node:
        node.start()
        create_topic(node.address, "orders")
        with WireClient(node.address) as one, WireClient(node.address) as other:
            wait_for(lambda: has_coordinator(one, "one"), "a coordinator")
            for client, group in ((one, "one"), (other, "other")):
                assert (
                    client.ask(commit(group, "orders"), 9).topics[0].partitions[0].error_code == 0
                )
            assert node.process is not None
            freeze(node.process.pid)
            one.send(commit("one", "orders", retention_time_ms=FOR_EVER_MS), version)
            other.send(commit("other", "orders"), 9)
            os.kill(node.process.pid, signal.SIGCONT)
            for client, requested in ((one, version), (other, 9)):
                _, answer = client.receive(ApiKey.OFFSET_COMMIT, requested)
                assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        node.stop()
        assert "Traceback" not in node.errors


async def test_a_commit_that_cannot_be_written_is_refused_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_groups(tmp_path) as node:
        impossible = node.commit_offset("a", 1 << 70)
        codes = await asyncio.gather(
            node.commit_offset("b", 1), impossible, node.commit_offset("a", 2)
        )
        assert [*codes] == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
        assert await node.fetch_offset("a") == 2
        await asyncio.gather(*(node.commit_offset("a", 1 << 70) for _ in range(20)))
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_requests_after_a_failing_one_are_notified_of_the_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A callback that raises neither ends the flush rounds nor hides the commit from others."""

    def fails(error: KafkaError | None) -> None:
        raise RuntimeError("this one only")

    async with running_groups(tmp_path) as node:
        partition = node.replicas.lookup(CONSUMER_OFFSETS, node.groups.partition_for("g"))
        first = partition.log.log_end_offset
        partition.on_committed(first, fails)
        committed = partition.wait_committed(first)
        assert await node.commit_offset("g", 5) == ErrorCode.NONE
        await committed
        assert await node.commit_offset("g", 6) == ErrorCode.NONE
    assert any(record.exc_info for record in caplog.records)


async def test_deadlines_of_others_come(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    deadlines = Deadlines(clock)
    done = [asyncio.Event() for _ in range(2)]

    def fails() -> None:
        raise RuntimeError("this one only")

    # One bucket, which is emptied from its end.
    deadlines.add(1, done[0].set)
    deadlines.add(1, fails)
    clock.call_later(2, done[1].set)
    for event in done:
        await event.wait()
    clock.close()
    assert any(record.exc_info for record in caplog.records)
