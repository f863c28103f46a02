"""Spark's JVM connector: batch and streaming, with a checkpoint and a restart."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from interop.peers.java_tools import TOPICS, JavaTools
from interop.peers.spark_cases import run_job
from interop.peers.toolchains import Spark

pytestmark = pytest.mark.interop

JOB = Path(__file__).with_name("spark_job.py")
ROWS = 2000
ROWS_IN_TRANSACTIONS = 300
CLIENT_TIMEOUT_S = 60


def test_sparks_connector_reads_and_writes(
    connector: Spark, tools: JavaTools, name: str, tmp_path: Path
) -> None:
    """One session for everything: starting Spark takes most of the time."""
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "3")
    tools.run(TOPICS, "--create", "--topic", f"{name}-copy", "--partitions", "2")
    write_in_transactions(tools.server.address, f"transactions-{name}")
    seen = run_job(connector, JOB, tmp_path, tools.server.address, name, str(tmp_path))

    batch = seen["batch"]
    assert (batch["count"], batch["distinct"]) == (ROWS, ROWS)
    assert batch["headers"] == [["source", "spark"]]
    assert batch["partitions"] == [0, 1, 2]
    assert sum(batch["ends"].values()) == ROWS
    assert batch["limited"] == 30
    assert seen["by_time"] == {"later": 100, "before": ROWS}
    assert seen["streaming"] == {
        "first": ROWS + 100,
        "again": 0,
        "more": 50,
        "copied": ROWS + 150,
        "distinct": ROWS + 150,
    }
    assert seen["transactions"] == {
        "read_committed": {"committed": ROWS_IN_TRANSACTIONS},
        "read_uncommitted": {
            "committed": ROWS_IN_TRANSACTIONS,
            "aborted": ROWS_IN_TRANSACTIONS,
        },
    }
    assert seen["pattern"] == 2 * (ROWS + 150)


def write_in_transactions(address: str, topic: str) -> None:
    """Writes to two partitions, in transactions that are alternately committed and aborted."""
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": topic, "log_level": 0, "linger.ms": 5}
    )
    producer.init_transactions(CLIENT_TIMEOUT_S)
    ends = {"committed": producer.commit_transaction, "aborted": producer.abort_transaction}
    for number in range(6):
        word = list(ends)[number % 2]
        producer.begin_transaction()
        for row in range(ROWS_IN_TRANSACTIONS // 3):
            producer.produce(topic, f"{word} {number} {row}", partition=row % 2)
        producer.flush(CLIENT_TIMEOUT_S)
        ends[word](CLIENT_TIMEOUT_S)
