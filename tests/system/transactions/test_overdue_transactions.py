"""No transaction stays open for ever: one that exceeds its timeout is aborted then and not before,
and readers continue. The node's clock is moved.
"""

import random
import secrets
from pathlib import Path

import pytest
from support.running_node import fresh_name
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import Place, committed
from system.transactions.committed_view import (
    fetch_committed,
    is_all_stable,
    read_committed,
    stable_offset,
    wait_until_stable,
)
from system.transactions.decisions import check_all_decided
from system.transactions.stepping_producer import GROUP, PLACES, TOPIC, Step, go_to
from system.transactions.wire_producer import Style, WireProducer

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.testing import ProcessBroker, ThreadBroker, broker

INTERVAL_MS = 100
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(INTERVAL_MS),
    "request.timeout.ms": "600000",
}
OPEN = [Step.WRITTEN, Step.WRITTEN_EVERYWHERE, Step.OFFSETS_SENT]
TIMEOUT_MS = 30_000
# Longer than a slow machine may take between two lines of a test, and no more than that.
MARGIN_MS = 10_000
TOLD_OFF = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
}


def is_open(client: WireClient, place: Place) -> bool:
    fetched = fetch_committed(client, place, stable_offset(client, place))
    return fetched.last_stable_offset < fetched.high_watermark


@pytest.mark.parametrize("style", Style)
def test_overdue_transactions_are_aborted_and_reported(tmp_path: Path, style: Style) -> None:
    with broker(SETTINGS, directory=tmp_path) as running:
        running.create_topic(TOPIC, len(PLACES))
        with WireClient(running.bootstrap) as client:
            for step in OPEN:
                _take_too_long(running, client, step, style)
    check_all_decided(tmp_path, [TOPIC, "__consumer_offsets"])


def _take_too_long(
    running: ThreadBroker | ProcessBroker, client: WireClient, step: Step, style: Style
) -> None:
    name = fresh_name("slow")
    late, waiting = f"late {name}".encode(), f"waiting {name}".encode()
    with (
        WireProducer(running.bootstrap, name, style, TIMEOUT_MS) as slow,
        WireProducer(running.bootstrap, fresh_name("quick"), style) as quick,
    ):
        go_to(step, slow.init(), late)
        quick.init().send(PLACES[0], waiting)
        quick.end(commits=True)
        running.clock.advance(ms=TIMEOUT_MS - MARGIN_MS)
        assert is_open(client, PLACES[0])
        assert waiting not in read_committed(client, PLACES[0])
        running.clock.advance(ms=MARGIN_MS + INTERVAL_MS)
        wait_until_stable(client, PLACES)
        seen = read_committed(client, PLACES[0])
        assert waiting in seen
        assert late not in seen
        assert committed(client, GROUP)[1] == {}
        for deed in (lambda: slow.send(PLACES[0], late), lambda: slow.end(commits=True)):
            with pytest.raises(KafkaError) as refused:
                deed()
            assert refused.value.code in TOLD_OFF
        assert is_all_stable(client, PLACES)
        # Its id is not lost.
        go_to(Step.WRITTEN_EVERYWHERE, slow.init(), late)
        slow.end(commits=True)
        wait_until_stable(client, PLACES)
        assert read_committed(client, PLACES[0])[-1] == late


def test_a_producer_of_version_2_may_repeat_an_abort_and_continue(tmp_path: Path) -> None:
    """It learns the epoch that the abort assigned to it."""
    with broker(SETTINGS, directory=tmp_path) as running, WireClient(running.bootstrap) as client:
        running.create_topic(TOPIC, len(PLACES))
        with WireProducer(running.bootstrap, "slow", Style.V2, TIMEOUT_MS) as slow:
            go_to(Step.WRITTEN_EVERYWHERE, slow.init(), b"late")
            running.clock.advance(ms=TIMEOUT_MS + INTERVAL_MS)
            wait_until_stable(client, PLACES)
            slow.end(commits=False)
            go_to(Step.WRITTEN_EVERYWHERE, slow, b"later")
            slow.end(commits=True)
        wait_until_stable(client, PLACES)
        assert [read_committed(client, place) for place in PLACES] == [[b"later"]] * 2
    check_all_decided(tmp_path, [TOPIC])


def test_each_is_aborted_in_its_own_time(tmp_path: Path) -> None:
    """Many at once, over a log each."""
    seed = secrets.token_hex(4)
    chance = random.Random(seed)
    timeouts_ms = [chance.randrange(20_000, 600_000) for _ in range(12)]
    places: list[Place] = [(TOPIC, index) for index in range(len(timeouts_ms))]
    with broker(SETTINGS, directory=tmp_path) as running, WireClient(running.bootstrap) as client:
        running.create_topic(TOPIC, len(places))
        for place, timeout_ms in zip(places, timeouts_ms, strict=True):
            style = chance.choice(list(Style))
            name = f"slow-{place[1]}"
            with WireProducer(running.bootstrap, name, style, timeout_ms) as slow:
                slow.init().send(place, b"late")
        moved_ms = 0
        while moved_ms < max(timeouts_ms) + INTERVAL_MS:
            step_ms = chance.randrange(1_000, 100_000)
            running.clock.advance(ms=step_ms)
            moved_ms += step_ms
            over, early = [], []
            for place, timeout_ms in zip(places, timeouts_ms, strict=True):
                if moved_ms > timeout_ms + INTERVAL_MS:
                    over.append(place)
                elif moved_ms < timeout_ms - MARGIN_MS:
                    early.append(place)
            wait_until_stable(client, over)
            assert all(is_open(client, place) for place in early), f"seed {seed}"
    check_all_decided(tmp_path, [TOPIC])


def test_transactions_open_at_a_kill_of_the_node_time_out(tmp_path: Path) -> None:
    """Its producer may be gone with it."""
    with broker(SETTINGS, directory=tmp_path, process=True) as running:
        assert isinstance(running, ProcessBroker)
        running.create_topic(TOPIC, len(PLACES))
        for step in OPEN:
            for style in Style:
                name = f"{step.name}-{style.name}"
                with WireProducer(running.bootstrap, name, style, TIMEOUT_MS) as slow:
                    go_to(step, slow.init(), b"lost")
        running.kill()
        running.start()
        with WireClient(running.bootstrap) as client:
            wait_for(lambda: committed(client, GROUP)[0] == 0, "the group's coordinator")
            assert all(is_open(client, place) for place in PLACES)
            running.clock.advance(ms=TIMEOUT_MS + INTERVAL_MS)
            wait_until_stable(client, PLACES)
            assert [read_committed(client, place) for place in PLACES] == [[], []]
            assert committed(client, GROUP) == (0, {})
    check_all_decided(tmp_path, [TOPIC, "__consumer_offsets"])
