"""One log directory, served in turns by Moldau and by Apache Kafka, with transactions in every
state: decided transactions stay decided, and the next node ends open ones.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.dump import faults
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from support.waiting import wait_for
from support.wire_client import WireClient
from system.transactions.wire_producer import Style, WireProducer

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
PLACES = [("orders", 0), ("orders", 1)]
# Long enough for the node that began it to be gone.
SHORT_MS = 4_000
TURNS = 4


class Ledger:
    """The records that committed readers must see."""

    def __init__(self) -> None:
        self.committed: list[bytes] = []
        self.count = 0

    def write(self, producer: WireProducer) -> list[bytes]:
        """Writes to all partitions."""
        values = []
        for place in PLACES:
            self.count += 1
            values.append(b"%s %d" % (producer.transactional_id.encode(), self.count))
            producer.send(place, values[-1])
        return values


class Left:
    """The transactions that one node leaves to the next, by producers of one style."""

    def __init__(self, address: str, style: Style, turn: int, ledger: Ledger) -> None:
        def producer(kind: str, timeout_ms: int = 600_000) -> WireProducer:
            return WireProducer(address, f"{kind}-{style.name}-{turn}", style, timeout_ms).init()

        decided = producer("decided")
        ledger.committed += ledger.write(decided)
        decided.end(commits=True)
        ledger.write(decided)
        decided.end(commits=False)
        ledger.committed += ledger.write(decided)
        # May be incomplete when the node ends.
        decided.end(commits=True)
        self.decided = decided
        self.open = producer("open")
        self.values = ledger.write(self.open)
        self.abandoned = producer("abandoned")
        ledger.write(self.abandoned)
        self.slow = producer("slow", SHORT_MS)
        ledger.write(self.slow)
        self._ledger = ledger

    @property
    def producers(self) -> list[WireProducer]:
        return [self.decided, self.open, self.abandoned, self.slow]

    def end(self) -> None:
        """Continues the transactions on the other node."""
        for producer in self.producers:
            producer.hang_up()
        self._ledger.committed += self.values + self._ledger.write(self.open)
        self.open.end(commits=True)
        zombie = self.abandoned
        heir = WireProducer(zombie.address, zombie.transactional_id, zombie.style).init()
        for attempt in (lambda: zombie.send(PLACES[0], b"late"), lambda: zombie.end(commits=True)):
            with pytest.raises(KafkaError) as refused:
                attempt()
            assert refused.value.code in {
                ErrorCode.INVALID_PRODUCER_EPOCH,
                ErrorCode.PRODUCER_FENCED,
            }
        self._ledger.committed += self._ledger.write(heir)
        heir.end(commits=True)
        self._ledger.committed += self._ledger.write(self.decided)
        self.decided.end(commits=True)
        expected = {
            self.open: "CompleteCommit",
            heir: "CompleteCommit",
            self.decided: "CompleteCommit",
            self.slow: "CompleteAbort",
        }
        for producer, state in expected.items():
            wait_for(lambda p=producer, s=state: state_of(p) == s, f"{state}")  # type: ignore[misc]
            producer.hang_up()
        heir.hang_up()
        zombie.hang_up()


def state_of(producer: WireProducer) -> str:
    with WireClient(producer.address) as client:
        request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
        return str(client.ask(request).transaction_states[0].transaction_state)


def read(node: LiveNode) -> list[bytes]:
    served = node.read([TopicPartition(*place) for place in PLACES], committed=True)
    return sorted(record.value or b"" for records in served.values() for record in records)


def serve(node: LiveNode, left: list[Left], ledger: Ledger) -> None:
    """End the other node's transactions, and check that no other records exist."""
    for each in left:
        each.end()
    assert read(node) == sorted(ledger.committed)


@pytest.mark.parametrize("ends", [LiveNode.stop, LiveNode.kill], ids=["stopped", "killed"])
@pytest.mark.parametrize("first", ["apache", "moldau"])
def test_the_next_node_ends_open_transactions(
    first: str, ends: Callable[[LiveNode], None], apache: ApacheOracle, tmp_path: Path
) -> None:
    ours, theirs = LiveMoldau(tmp_path, SETTINGS), LiveBroker(apache, tmp_path, SETTINGS)
    ours.address, ours.controller_address = theirs.address, theirs.controller_address
    nodes: list[LiveNode] = [theirs, ours] if first == "apache" else [ours, theirs]
    ledger, left = Ledger(), list[Left]()
    with ours, theirs:
        nodes[0].format()
        for turn in range(TURNS):
            node = nodes[turn % 2]
            node.start()
            if turn == 0:
                node.create_topic("orders", len(PLACES))
            serve(node, left, ledger)
            left = [Left(node.address, style, turn, ledger) for style in Style]
            ends(node)
        ours.start()
        serve(ours, left, ledger)
        ours.stop()
    for folder in ("__transaction_state-0", "orders-0", "orders-1"):
        assert faults(apache, ours.log_folder / folder) == []
