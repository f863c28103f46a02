"""Changes of logs and topics while transactions are open or end: trimmed, deleted, created again,
compacted, expired. No transaction hangs, and nothing is visible that should not be.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running_node import fresh_name
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import (
    EARLIEST,
    LATEST,
    Place,
    committed,
    delete_records,
    delete_topics,
    offset_at,
    read,
    set_config,
)
from system.transactions.committed_view import (
    CommittedReader,
    is_all_stable,
    read_committed,
    stable_offset,
    wait_until_at_rest,
    wait_until_stable,
)
from system.transactions.decisions import check_nothing_open
from system.transactions.stepping_producer import GROUP, PLACES, TOPIC, Step, go_to
from system.transactions.wire_producer import Style, WireProducer

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.testing import ProcessBroker

OTHER = "other"
COORDINATOR_PARTITIONS = 4
DAY_MS = 24 * 60 * 60 * 1000
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "moldau.flush.policy": "group",
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
}
KEPT = {"retention.ms": "-1"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ProcessBroker]:
    """Nothing is open after it was stopped."""
    made = ProcessBroker(SETTINGS, tmp_path)
    try:
        made.start()
        made.create_topic(TOPIC, len(PLACES), KEPT)
        yield made
        with WireClient(made.bootstrap) as client:
            wait_until_stable(client, PLACES)
        made.stop()
        check_nothing_open(tmp_path, [TOPIC, OTHER, "__consumer_offsets"])
    finally:
        made.close()


@pytest.fixture
def client(running: ProcessBroker) -> Iterator[WireClient]:
    with WireClient(running.bootstrap) as connection:
        yield connection


def kill(running: ProcessBroker) -> WireClient:
    """And continue."""
    running.kill()
    running.start()
    return WireClient(running.bootstrap)


@pytest.mark.parametrize(
    ("style", "commits", "is_killed"),
    [
        (Style.V1, True, False),
        (Style.V2, True, True),
        (Style.V2, False, False),
        pytest.param(Style.V1, True, True, marks=pytest.mark.slow),
        pytest.param(Style.V1, False, True, marks=pytest.mark.slow),
        pytest.param(Style.V2, False, True, marks=pytest.mark.slow),
    ],
)
def test_records_of_an_open_transaction_may_be_deleted(
    running: ProcessBroker, style: Style, commits: bool, is_killed: bool
) -> None:
    with (
        WireProducer(running.bootstrap, fresh_name("trimmed"), style) as producer,
        WireClient(running.bootstrap) as client,
    ):
        go_to(Step.WRITTEN_EVERYWHERE, producer.init(), b"deleted")
        end = offset_at(client, PLACES[0], LATEST)
        assert delete_records(client, PLACES[0], end) == (0, end)
        assert stable_offset(client, PLACES[0]) >= end
        if is_killed:
            running.kill()
            running.start()
    producer.send(PLACES[0], b"left")
    producer.end(commits=commits)
    with WireClient(running.bootstrap) as client:
        wait_until_stable(client, PLACES)
        seen = [_read_from_start(client, place) for place in PLACES]
        assert seen == ([[b"left"], [b"deleted"]] if commits else [[], []])
    producer.hang_up()


def _read_from_start(client: WireClient, place: Place) -> list[bytes]:
    reader = CommittedReader(place)
    reader.position = offset_at(client, place, EARLIEST)
    return reader.read_on(client)


@pytest.mark.parametrize("is_made_anew", [False, True], ids=["deleted", "made-anew"])
@pytest.mark.parametrize("style", Style)
def test_a_topic_may_go_while_a_transaction_writes_to_it(
    running: ProcessBroker, client: WireClient, style: Style, is_made_anew: bool
) -> None:
    running.create_topic(OTHER, 2, KEPT)
    with WireProducer(running.bootstrap, fresh_name("left"), style) as producer:
        go_to(Step.OFFSETS_SENT, producer.init(), b"stays")
        producer.send((OTHER, 0), b"goes")
        producer.send((OTHER, 1), b"goes")
        assert delete_topics(client, OTHER) == {OTHER: 0}
        if is_made_anew:
            running.create_topic(OTHER, 2, KEPT)
        producer.end(commits=True)
        wait_until_stable(client, PLACES)
        assert [read_committed(client, place) for place in PLACES] == [[b"stays"]] * 2
        # It is over: the next one begins.
        producer.send(PLACES[0], b"next")
        producer.end(commits=True)
        wait_until_stable(client, PLACES)
        if is_made_anew:
            assert read_committed(client, (OTHER, 0)) == []
            assert is_all_stable(client, [(OTHER, 0), (OTHER, 1)])


def is_unknown(client: WireClient, transactional_id: str) -> bool:
    """Checked without using the id, which would keep it from expiring."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = client.ask(request).transaction_states
    return bool(state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


@pytest.mark.parametrize("style", Style)
def test_an_unused_id_expires_and_can_be_used_again(
    running: ProcessBroker, client: WireClient, style: Style
) -> None:
    with (
        WireProducer(running.bootstrap, "forgotten", style) as before,
        WireProducer(running.bootstrap, "forgotten", style) as after,
    ):
        go_to(Step.WRITTEN_EVERYWHERE, before.init(), b"before")
        before.end(commits=True)
        wait_until_at_rest(client)
        running.clock.advance(ms=8 * DAY_MS)

        # The old connection was idle for days.
        with WireClient(running.bootstrap) as another:
            wait_for(lambda: is_unknown(another, "forgotten"), "the id to expire")
        with pytest.raises(KafkaError) as refused:
            before.end(commits=False)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        for place in PLACES:
            with pytest.raises(KafkaError):
                before.send(place, b"late")
        go_to(Step.WRITTEN_EVERYWHERE, after.init(), b"after")
        assert after.producer_id != before.producer_id
        with pytest.raises(KafkaError):
            before.send(PLACES[0], b"late")
        after.end(commits=True)
    with WireClient(running.bootstrap) as another:
        wait_until_stable(another, PLACES)
        assert [read_committed(another, place) for place in PLACES] == [[b"before", b"after"]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("style", Style)
def test_compaction_of_the_coordinators_logs_changes_no_end(
    running: ProcessBroker, client: WireClient, style: Style
) -> None:
    """Offsets that wait for the end of their transaction are older than the marker that makes them
    valid.
    """
    with (
        WireProducer(running.bootstrap, "waits", style) as waits,
        WireProducer(running.bootstrap, "busy", style) as busy,
        WireProducer(running.bootstrap, "gives-up", style) as gives_up,
    ):
        busy.init().send_offsets("busy", {PLACES[0]: 0})
        busy.end(commits=True)
        for topic in ("__consumer_offsets", "__transaction_state"):
            for name, value in {
                "internal.segment.bytes": "2000",
                "min.cleanable.dirty.ratio": "0.01",
            }.items():
                assert set_config(client, topic, name, value) == 0
        waits.init().send_offsets(GROUP, {PLACES[0]: 7})
        gives_up.init().send_offsets(GROUP, {PLACES[1]: 7})
        for number in range(150):
            busy.send_offsets("busy", {PLACES[0]: number})
            busy.send_offsets(GROUP + "-2", {PLACES[0]: number})
            busy.end(commits=number % 3 != 0)
        client = kill(running)
        # The last is aborted.
        for number in range(150, 199):
            busy.send_offsets("busy", {PLACES[0]: number})
            busy.end(commits=number % 3 != 0)
        gives_up.end(commits=False)
        waits.end(commits=True)
        wait_for(lambda: committed(client, GROUP) == (0, {PLACES[0]: 7}), "the offset")
        wait_for(lambda: _is_compacted(client, "__transaction_state"), "the cleaner")
        wait_for(lambda: _is_compacted(client, "__consumer_offsets"), "the cleaner")
        client.close()
        client = kill(running)
        wait_for(lambda: committed(client, GROUP)[0] == 0, "the coordinator")
        assert committed(client, GROUP) == (0, {PLACES[0]: 7})
        wait_for(lambda: committed(client, "busy") == (0, {PLACES[0]: 197}), "the offset")
        client.close()


def _is_compacted(client: WireClient, topic: str) -> bool:
    """Much of it is gone; markers stay for a day."""
    places = [(topic, index) for index in range(COORDINATOR_PARTITIONS)]
    ends = [offset_at(client, place, LATEST) for place in places]
    left = [len(read(client, place, 0, end)) for place, end in zip(places, ends, strict=True)]
    return any(end > 100 and count * 4 < end * 3 for end, count in zip(ends, left, strict=True))
