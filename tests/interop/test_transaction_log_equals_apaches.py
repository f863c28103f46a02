"""Moldau and Apache Kafka write the same records into __transaction_state for the same requests.
Apache's tool reads ours, and `moldau dump` prints the same lines.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.command import moldau
from interop.apache import ApacheOracle
from interop.dump import TOOL, faults
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from support.waiting import wait_for
from support.wire_client import WireClient
from system.transactions.wire_producer import Style, WireProducer

from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest

pytestmark = pytest.mark.interop

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
RECORD = re.compile(r"\| offset: .* key: (?P<key>\{.*?\}\}) payload: (?P<value>.*)")
TIMES = ("transactionLastUpdateTimestampMs", "transactionStartTimestampMs")


def states_of(address: str, transactional_id: str) -> str:
    with WireClient(address) as client:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        return str(client.ask(request).transaction_states[0].transaction_state)


def wait_for_state(producer: WireProducer, state: str) -> None:
    """Waits until the markers are written, so that the next record in the log is that of the next
    step.
    """
    wait_for(lambda: states_of(producer.address, producer.transactional_id) == state, state)


def several_ends(producer: WireProducer) -> None:
    producer.init()
    for commits, state in ((True, "CompleteCommit"), (False, "CompleteAbort")) * 2:
        producer.send(("orders", 1), b"a")
        producer.send(("orders", 0), b"b", b"c")
        producer.send(("orders", 1), b"d")
        producer.send_offsets("readers", {("orders", 0): 1})
        producer.end(commits=commits)
        wait_for_state(producer, state)
    producer.init()


def taken_over(producer: WireProducer) -> None:
    producer.init()
    producer.init()
    producer.send(("orders", 0), b"torn")
    producer.init()
    wait_for_state(producer, "Empty")
    producer.send(("orders", 0), b"whole")
    producer.end(commits=True)
    wait_for_state(producer, "CompleteCommit")
    producer.init()


def timed_out(producer: WireProducer) -> None:
    producer.timeout_ms = 200
    producer.init()
    producer.send(("orders", 0), b"too slow")
    wait_for_state(producer, "CompleteAbort")
    producer.init()


def left_open(producer: WireProducer) -> None:
    producer.init()
    producer.send(("orders", 0), b"open")


def nothing_in_it(producer: WireProducer) -> None:
    """Only the new protocol ends a transaction the coordinator never saw begin, and only by
    aborting it.
    """
    producer.init()
    if not producer.style.adds_itself:
        producer.end(commits=False)
        wait_for_state(producer, "CompleteAbort")
        producer.end(commits=False)
        wait_for_state(producer, "CompleteAbort")


STORIES: dict[str, Callable[[WireProducer], None]] = {
    story.__name__: story
    for story in (several_ends, taken_over, timed_out, left_open, nothing_in_it)
}


def act(node: LiveNode) -> None:
    """Runs all stories, in both styles, one after the other."""
    node.format()
    node.start()
    node.create_topic("orders", 2)
    for style in Style:
        for name, story in STORIES.items():
            with WireProducer(node.address, f"{name}-{style.name}", style) as producer:
                story(producer)
    node.stop()


def dumped(apache: ApacheOracle, node: LiveNode) -> list[str]:
    """The output of Apache's tool for the transaction log."""
    files = sorted((node.log_folder / "__transaction_state-0").glob("*.log"))
    option = "--transaction-log-decoder"
    run = apache.run_tool(TOOL, option, "--files", ",".join(map(str, files)))
    assert (run.status, run.errors) == (0, ""), run.errors
    assert moldau("dump", "--records", *files).lines == run.output.splitlines()
    return run.output.splitlines()


def history(lines: list[str]) -> dict[str, list[Any]]:
    """The records of each id. Producer ids are relative to the id's first, times are only compared
    for presence, and partitions of a topic are a set.
    """
    found: dict[str, list[Any]] = {}
    for line in lines:
        match = RECORD.match(line)
        if match is None:
            continue
        key, value = json.loads(match["key"]), json.loads(match["value"])
        content = value["data"]
        records = found.setdefault(key["data"]["transactionalId"], [])
        first = records[0]["first"] if records else content["producerId"]
        for name in content:
            if name in TIMES:
                content[name] = content[name] > 0
            elif name.endswith("roducerId") and content[name] >= 0:
                content[name] -= first
        for topic in content["transactionPartitions"] or ():
            topic["partitionIds"].sort()
        if content["transactionPartitions"]:
            content["transactionPartitions"].sort(key=lambda topic: topic["topic"])
        records.append({"first": first, "key": key["type"], "value": value})
    return {
        name: [(record["key"], record["value"]) for record in records]
        for name, records in found.items()
    }


def test_the_transaction_log_has_the_same_records(apache: ApacheOracle, tmp_path: Path) -> None:
    for kind in ("ours", "theirs"):
        (tmp_path / kind).mkdir()
    with (
        LiveMoldau(tmp_path / "ours", SETTINGS) as ours,
        LiveBroker(apache, tmp_path / "theirs", SETTINGS) as theirs,
    ):
        act(ours)
        act(theirs)
    written, expected = history(dumped(apache, ours)), history(dumped(apache, theirs))
    assert set(written) == {f"{name}-{style.name}" for name in STORIES for style in Style}
    for name, records in expected.items():
        assert written[name] == records, name
    states = [value["data"]["transactionStatus"] for _, value in written["taken_over-V2"]]
    assert states == [0, 0, 1, 3, 5, 0, 1, 2, 4, 0]
    for folder in ("__transaction_state-0", "__consumer_offsets-0", "orders-0", "orders-1"):
        assert faults(apache, ours.log_folder / folder) == []
