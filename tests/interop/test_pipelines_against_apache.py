"""A pipeline with Apache Kafka as its broker: one pass to two topics and dead letters, and the sums
of a window by key; it is killed with an open transaction, and the next run completes everything
exactly once.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker
from pipelines.killing import batches_of, started
from support.waiting import wait_for

from moldau import Admin, Consumer, Producer
from moldau.pipelines.run.run_folder import RunFolder

pytestmark = pytest.mark.interop

ROWS = 3_000
PARTITIONS = 2
BROKEN_EVERY = 10
WAIT_S = 500.0
PIPELINE = """\
name: visits
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  visits:
    topic: visits
    schema: "n BIGINT, user STRING, ts TIMESTAMP"
    start: earliest
    dead_letter: visits.dlq
    max_offsets_per_trigger: 200
steps:
  even: {{sql: SELECT n FROM visits WHERE n % 2 = 0, into: {{topic: visits.even, key: n}}}}
  odd: {{sql: SELECT n FROM visits WHERE n % 2 = 1, into: {{topic: visits.odd, key: n}}}}
  sums:
    sql: |
      SELECT date_format(window.start, 'HH:mm') AS start, user, count(*) AS times, sum(n) AS total
      FROM visits WATERMARK ts DELAY OF INTERVAL 1 DAY
      GROUP BY window(ts, '10 minutes'), user
    mode: upsert
    into: {{topic: visits.sums, key: [start, user], compacted: true}}
"""


@pytest.fixture(scope="module")
def node(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(apache, tmp_path_factory.mktemp("apache")) as running:
        running.format()
        running.start()
        yield running


def visit(number: int) -> bytes:
    if number % BROKEN_EVERY == 0:
        return b"{%d" % number
    time = f"2026-11-16T10:{number % 60:02}:00Z"
    return json.dumps({"n": number, "user": f"u{number % 3}", "ts": time}).encode()


def committed(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """All records that committed readers get, in order within partitions."""
    found = []
    with Consumer(
        bootstrap, config={"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    ) as consumer:
        places = consumer.partitions_for(topic)
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(one) < ends[one] for one in places):
            found += [(one.key, one.value) for one in consumer.poll(1.0)]
    return found


def test_a_pipeline_is_killed_and_run_again(node: LiveBroker, tmp_path: Path) -> None:
    node.create_topic("visits", PARTITIONS)
    with Producer(node.address) as producer:
        for number in range(ROWS):
            producer.send("visits", visit(number), partition=number % PARTITIONS)
    path = tmp_path / "visits.yaml"
    path.write_text(PIPELINE.format(bootstrap=node.address))
    folder = RunFolder(tmp_path / ".moldau" / "visits")

    with Admin(node.address) as admin, started(path) as running:

        def is_in_the_middle() -> bool:
            assert running.poll() is None, (tmp_path / "errors").read_text()[-3000:]
            return batches_of(folder, running.pid) >= 1 and "Ongoing" in {
                one.state for one in admin.list_transactions()
            }

        wait_for(is_in_the_middle, "an open transaction", WAIT_S)
        # Leaving the block kills it and all its processes.
    with started(path, "--once") as last:
        assert last.wait(WAIT_S) == 0, (tmp_path / "errors").read_text()[-3000:]

    good = [number for number in range(ROWS) if number % BROKEN_EVERY]
    for topic, rest in (("visits.even", 0), ("visits.odd", 1)):
        numbers = [json.loads(value or b"")["n"] for _, value in committed(node.address, topic)]
        assert sorted(numbers) == [number for number in good if number % 2 == rest]
    broken = [visit(number) for number in range(0, ROWS, BROKEN_EVERY)]
    assert Counter(value for _, value in committed(node.address, "visits.dlq")) == Counter(broken)

    last_by_key = {
        key: json.loads(value or b"") for key, value in committed(node.address, "visits.sums")
    }
    groups: dict[tuple[str, str], list[int]] = {}
    for number in good:
        start = f"10:{number % 60 // 10}0"
        groups.setdefault((start, f"u{number % 3}"), []).append(number)
    found = {
        (one["start"], one["user"]): (one["times"], one["total"]) for one in last_by_key.values()
    }
    assert found == {key: (len(numbers), sum(numbers)) for key, numbers in groups.items()}
    with Admin(node.address) as admin:
        states = Counter(one.state for one in admin.list_transactions())
    assert "Ongoing" not in states, states
