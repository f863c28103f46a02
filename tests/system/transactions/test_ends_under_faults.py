"""Transactions that are decided while their markers cannot be delivered: they end completely once
the fault is gone; until then no part of them is visible.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.offset_talk import SETTINGS, OffsetTalk, wait_for_coordinators
from support.waiting import wait_for
from support.wire_client import WireClient

from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.testing import ThreadBroker, broker

TRIES = 7
LONG_MS = 3_600_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ThreadBroker]:
    with broker(SETTINGS, directory=tmp_path) as started:
        assert isinstance(started, ThreadBroker)
        started.create_topic("t", 4)
        wait_for_coordinators(started.bootstrap)
        yield started


@pytest.fixture
def talk(node: ThreadBroker) -> Iterator[OffsetTalk]:
    conversation = OffsetTalk(node.bootstrap)
    try:
        yield conversation
    finally:
        conversation.wire.close()


def says(talk: OffsetTalk, *lines: str) -> list[str]:
    talk.lines = []
    for line in lines:
        talk.run(line)
    return talk.lines


def begin(talk: OffsetTalk) -> None:
    assert says(talk, "p begins", "p writes t-0", "p writes t-1", "a commits txn=p t-0=5 v=5") == [
        "p begins: NONE epoch=0",
        "p writes: NONE",
        "p writes: NONE",
        "a commits: t-0=NONE",
    ]


def state_of(node: ThreadBroker, talk: OffsetTalk, name: str = "p") -> str:
    with WireClient(node.bootstrap) as client:
        request = DescribeTransactionsRequest(transactional_ids=[talk.transactional_id(name)])
        (state,) = client.ask(request).transaction_states
        return str(state.transaction_state)


def moving_on(node: ThreadBroker) -> None:
    """Moves the clock to the next retry."""
    node.clock.advance(seconds=2)


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR"])
def test_refused_markers_are_tried_until_they_are_taken(
    node: ThreadBroker, talk: OffsetTalk, error: str
) -> None:
    begin(talk)
    node.fail_next("WriteTxnMarkers", error, times=TRIES)
    assert says(talk, "p ends commit v=5") == ["p ends: NONE epoch=1"]
    assert state_of(node, talk) == "PrepareCommit"
    assert says(talk, "a fetches t-0 stable", "a fetches t-0") == [
        "a fetches: t-0=UNSTABLE_OFFSET_COMMIT",
        "a fetches: t-0=-1",
    ]

    def is_complete() -> bool:
        moving_on(node)
        return state_of(node, talk) == "CompleteCommit"

    wait_for(is_complete, "the end")
    assert says(talk, "a fetches t-0 stable") == ["a fetches: t-0=5"]


def test_a_topic_that_is_deleted_meanwhile_delays_no_transaction(
    node: ThreadBroker, talk: OffsetTalk
) -> None:
    node.create_topic("gone", 2)
    node.create_topic("going", 2)
    begin(talk)
    assert says(talk, "p writes gone-1", "p writes going-0") == ["p writes: NONE"] * 2
    delete_topic(node, "gone")
    node.fail_next("WriteTxnMarkers", "NOT_LEADER_OR_FOLLOWER", times=TRIES)
    assert says(talk, "p ends abort v=5") == ["p ends: NONE epoch=1"]
    delete_topic(node, "going")

    def is_complete() -> bool:
        moving_on(node)
        return state_of(node, talk) == "CompleteAbort"

    wait_for(is_complete, "the end")
    assert says(talk, "a awaits t-0", "p writes t-1", "p ends commit v=5") == [
        "a awaits: t-0=-1",
        "p writes: NONE",
        "p ends: NONE epoch=2",
    ]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_node_that_stops_before_its_markers_are_sent_sends_them_later(
    node: ThreadBroker, talk: OffsetTalk, end: str
) -> None:
    begin(talk)
    node.delay("WriteTxnMarkers", ms=LONG_MS)
    assert says(talk, f"p ends {end} v=5") == ["p ends: NONE epoch=1"]
    assert says(talk, "a fetches t-0 stable") == ["a fetches: t-0=UNSTABLE_OFFSET_COMMIT"]
    talk.wire.close()
    node.clear_faults()
    node.restart()
    talk.go_to(node.bootstrap)
    wait_for_coordinators(node.bootstrap)
    offset = "5" if end == "commit" else "-1"
    assert says(talk, "a awaits t-0", "p writes t-0", "p ends commit v=5") == [
        f"a awaits: t-0={offset}",
        "p writes: NONE",
        "p ends: NONE epoch=2",
    ]


def test_a_broker_that_does_not_respond_is_retried(node: ThreadBroker, talk: OffsetTalk) -> None:
    begin(talk)
    node.delay("WriteTxnMarkers", ms=LONG_MS, times=1)
    assert says(talk, "p ends commit v=5") == ["p ends: NONE epoch=1"]
    assert state_of(node, talk) == "PrepareCommit"
    node.clock.advance(seconds=31)

    def is_complete() -> bool:
        moving_on(node)
        return state_of(node, talk) == "CompleteCommit"

    wait_for(is_complete, "the end")
    assert says(talk, "a awaits t-0") == ["a awaits: t-0=5"]


def delete_topic(node: ThreadBroker, name: str) -> None:
    with WireClient(node.bootstrap) as client:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
        (deleted,) = client.ask(request).responses
        assert deleted.error_code == 0, deleted
