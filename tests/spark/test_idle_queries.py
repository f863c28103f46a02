"""What a streaming query asks of a broker while nothing comes: Spark itself would ask for offsets
ninety times a second.
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

from moldau.testing import ThreadBroker, broker

pytestmark = pytest.mark.spark

LONG_POLL_S = 0.5
"""What the page says of longPollMs."""
ROUNDS = 8
# Before and after the wait it looks which partitions there are and where they end; the wait is one.
REQUESTS_PER_ROUND = 5
WAIT_S = 300


@pytest.fixture(scope="module")
def counting() -> Iterator[ThreadBroker]:
    with broker({"moldau.metrics.port": "0"}) as running:
        assert isinstance(running, ThreadBroker)
        yield running


def requests(node: ThreadBroker) -> dict[str, int]:
    """That were served, by the API's name."""
    with urlopen(f"http://127.0.0.1:{node.metrics_port}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'^moldau_request_seconds_count\{api="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {name: int(float(count)) for name, count in found}


def wait_for_polls(node: ThreadBroker, count: int) -> tuple[float, dict[str, int]]:
    """Until so many long polls have ended; when it was, and what was served by then."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = requests(node)
        now = time.monotonic()
        if found.get("FETCH", 0) >= count:
            return now, found
        assert now < deadline, found


def test_an_idle_query_asks_twice_a_second(
    session: Any, counting: ThreadBroker, tmp_path: Path
) -> None:
    topic, target = fresh_topic(counting, 4), fresh_topic(counting)
    send_numbers(counting, topic, 100)
    query = started_copy(session, counting.bootstrap, (topic, target), tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        # The first one may be at its end already.
        first = requests(counting).get("FETCH", 0) + 1
        begun, before = wait_for_polls(counting, first)
        ended, after = wait_for_polls(counting, before["FETCH"] + ROUNDS)
        assert query.isActive, query.exception()
        assert len(read_batch(counting, subscribe=target)) == 100
    finally:
        query.stop()
    made = {name: count - before.get(name, 0) for name, count in after.items()}
    rounds = made["FETCH"]
    # However slow the machine is, so many rounds take at least so long.
    assert ended - begun > (rounds - 1) * LONG_POLL_S * 0.9, made
    assert sum(made.values()) <= (rounds + 1) * REQUESTS_PER_ROUND, made
    # Nothing is written where nothing has changed.
    assert made.get("OFFSET_COMMIT", 0) == 0
    assert made.get("PRODUCE", 0) == 0
