"""The requests of an idle streaming query: without a long poll Spark would request offsets ninety
times a second.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from spark.rows import fresh_topic, read_batch, send_numbers
from support.spark_sessions import started_copy
from support.waiting import wait_for

from moldau.testing import ThreadBroker, broker

pytestmark = pytest.mark.spark

LONG_POLL_S = 0.5
"""The default that the page documents for longPollMs."""
ROUNDS = 8
# Before and after the wait it requests partitions and their ends; the wait is one request.
REQUESTS_PER_ROUND = 5
WAIT_S = 300


@pytest.fixture(scope="module")
def counting() -> Iterator[ThreadBroker]:
    with broker({"moldau.metrics.port": "0"}) as running:
        assert isinstance(running, ThreadBroker)
        yield running


def requests(node: ThreadBroker) -> dict[str, int]:
    """The number of served requests, by the API's name."""
    with urlopen(f"http://127.0.0.1:{node.metrics_port}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'^moldau_request_seconds_count\{api="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {name: int(float(count)) for name, count in found}


def wait_for_polls(node: ThreadBroker, count: int) -> tuple[float, dict[str, int]]:
    """Waits until `count` long polls have ended. Returns the time, and the requests served until
    then.
    """
    found: dict[str, int] = {}

    def have_ended() -> bool:
        found.update(requests(node))
        return found.get("FETCH", 0) >= count

    wait_for(have_ended, lambda: f"{count} long polls: {found}", WAIT_S)
    return time.monotonic(), found


def test_an_idle_query_sends_requests_twice_a_second(
    session: Any, counting: ThreadBroker, tmp_path: Path
) -> None:
    topic, target = fresh_topic(counting, 4), fresh_topic(counting)
    send_numbers(counting, topic, 100)
    query = started_copy(session, counting.bootstrap, (topic, target), tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        # The first one may be nearly over.
        first = requests(counting).get("FETCH", 0) + 1
        begun, before = wait_for_polls(counting, first)
        ended, after = wait_for_polls(counting, before["FETCH"] + ROUNDS)
        assert query.isActive, query.exception()
        assert len(read_batch(counting, subscribe=target)) == 100
    finally:
        query.stop()
    made = {name: count - before.get(name, 0) for name, count in after.items()}
    rounds = made["FETCH"]
    # Even on a slow machine, this many rounds take at least this long.
    assert ended - begun > (rounds - 1) * LONG_POLL_S * 0.9, made
    assert sum(made.values()) <= (rounds + 1) * REQUESTS_PER_ROUND, made
    # Nothing is written if nothing has changed.
    assert made.get("OFFSET_COMMIT", 0) == 0
    assert made.get("PRODUCE", 0) == 0
