"""Transactions in /metrics: their number by state, and those that hold up readers."""

import re
import time
import urllib.request
from pathlib import Path

from cli.hanging import TIMEOUT_S, transactional, write_unannounced
from confluent_kafka import Producer
from support.running_node import QUICK_SETTINGS, RunningNode, free_port
from support.waiting import wait_for

HOUR_MS = 3_600_000


def metrics(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    lines = re.findall(r"^(moldau\S+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in lines}


def shown(port: int, wanted: dict[str, float]) -> None:
    """Waits for it: a busy node may answer with the page of the previous request."""

    def is_shown() -> bool:
        found = metrics(port)
        return {name: found.get(name) for name in wanted} == wanted

    wait_for(is_shown, f"{wanted} in the metrics")


def test_open_and_hanging_transactions_are_counted(tmp_path: Path) -> None:
    port = free_port()
    settings = QUICK_SETTINGS | {
        "moldau.metrics.port": str(port),
        "transaction.partition.verification.enable": "false",
        "num.partitions": "1",
    }
    ongoing, complete = (
        f'moldau_transactions{{state="{state}"}}' for state in ("Ongoing", "CompleteCommit")
    )
    late = "moldau_partitions_with_late_transactions"
    stable, mark = (
        f'moldau_{name}{{partition="0",topic="orders"}}'
        for name in ("last_stable_offset", "high_watermark")
    )
    with RunningNode(tmp_path, settings) as node:
        node.start()
        shown(port, {ongoing: 0, late: 0})
        with transactional(node.address, "billing") as producer:
            producer.begin_transaction()
            producer.produce("orders", "a")
            assert producer.flush(TIMEOUT_S) == 0
            shown(port, {ongoing: 1, complete: 0, late: 0, stable: 0, mark: 1})
            producer.commit_transaction(TIMEOUT_S)
        shown(port, {ongoing: 0, complete: 1, stable: 2, mark: 2})

        write_unannounced(node.address, "orders", 0, time.time_ns() // 1_000_000 - HOUR_MS)
        plain = Producer({"bootstrap.servers": node.address})
        plain.produce("orders", "b")
        assert plain.flush(TIMEOUT_S) == 0
        shown(port, {late: 1, stable: 2, mark: 4})
        node.stop()
