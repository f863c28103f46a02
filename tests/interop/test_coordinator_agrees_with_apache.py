"""The same requests to the transaction coordinator, from brokers and from clients that misuse it,
get the same responses from Apache Kafka and from Moldau.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from support.producer_talk import wait_for_coordinator
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest

pytestmark = pytest.mark.interop

SETTINGS = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "2"}
BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
Places = list[tuple[str, int]]


class Coordinator:
    """A client of the coordinator that records the responses."""

    def __init__(self, address: str) -> None:
        self.wire = WireClient(address)
        self.log: list[str] = []
        self.producers: dict[str, tuple[int, int]] = {}

    def begin(self, name: str) -> None:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = self.wire.ask(request, 5)
        while answer.error_code in BUSY:
            answer = self.wire.ask(request, 5)
        assert answer.error_code == 0, answer.error_code
        self.producers[name] = (answer.producer_id, answer.producer_epoch)

    def init(self, version: int, **fields: object) -> None:
        values: dict[str, object] = {"transactional_id": "x", "transaction_timeout_ms": 1_000}
        answer = self.wire.ask(InitProducerIdRequest(**(values | fields)), version)  # type: ignore[arg-type]
        code = ErrorCode(answer.error_code).name
        without_id = (answer.producer_id, answer.producer_epoch) == (-1, -1)
        self.log.append(f"init v{version} {sorted(fields.items(), key=str)}: {code} {without_id}")

    def add_as_client(self, version: int, name: str, places: Places) -> None:
        producer_id, epoch = self.producers.get(name, (1, 0))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=_topics(places),
        )
        answer = self.wire.ask(request, version)
        codes = _codes(answer.results_by_topic_v3_and_below)
        self.log.append(f"add v{version} {name!r} {places}: {codes}")

    def add_as_broker(
        self, version: int, requested: list[tuple[str, bool, Places]], *, epoch_ahead: int = 0
    ) -> None:
        transactions = []
        for name, verifies, places in requested:
            producer_id, epoch = self.producers.get(name, (1, 0))
            transactions.append(
                AddPartitionsToTxnTransaction(
                    transactional_id=name,
                    producer_id=producer_id,
                    producer_epoch=epoch + epoch_ahead,
                    verify_only=verifies,
                    topics=_topics(places),
                )
            )
        answer = self.wire.ask(AddPartitionsToTxnRequest(transactions=transactions), version)
        codes = sorted(
            f"{each.transactional_id!r} {_codes(each.topic_results)}"
            for each in answer.results_by_transaction
        )
        code = ErrorCode(answer.error_code).name
        self.log.append(f"broker v{version} {requested} {epoch_ahead}: {code} {codes}")

    def add_offsets(self, version: int, name: str, group: str, epoch_ahead: int = 0) -> None:
        producer_id, epoch = self.producers.get(name, (1, 0))
        request = AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch + epoch_ahead,
            group_id=group,
        )
        answer = self.wire.ask(request, version)
        while answer.error_code in BUSY:
            answer = self.wire.ask(request, version)
        code = ErrorCode(answer.error_code).name
        self.log.append(f"offsets v{version} {name!r} {group!r} {epoch_ahead}: {code}")

    def find(self, version: int, key_type: int, key: str) -> None:
        request = FindCoordinatorRequest(key_type=key_type, key=key)
        if version >= 4:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key, key + "2"])
        answer = self.wire.ask(request, version)
        found = answer.coordinators if version >= 4 else [answer]
        codes = [(ErrorCode(each.error_code).name, each.node_id >= 0) for each in found]
        self.log.append(f"find v{version} {key_type} {key!r}: {codes}")


def _topics(places: Places) -> list[AddPartitionsToTxnTopic]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    return [AddPartitionsToTxnTopic(name=t, partitions=i) for t, i in by_topic.items()]


def _codes(results: Iterable[AddPartitionsToTxnTopicResult]) -> list[str]:
    return sorted(
        f"{topic.name}-{each.partition_index} {ErrorCode(each.partition_error_code).name}"
        for topic in results
        for each in topic.results_by_partition
    )


def conversation(address: str) -> list[str]:
    coordinator = Coordinator(address)
    for name in ("a", "b", "c"):
        coordinator.begin(name)
    t0, t1, gone = ("t", 0), ("t", 1), ("nowhere", 0)
    internal: Places = [("__transaction_state", 0), ("__consumer_offsets", 0)]
    for version in range(4):
        for places in ([t0, gone], [("t", 9)], [internal[0], t0], [internal[1]], [t0, t1], []):
            coordinator.add_as_client(version, "a", places)
        coordinator.add_as_client(version, "", [t0])
        coordinator.add_as_client(version, "unknown", [t0])
    for version in (4, 5):
        coordinator.add_as_broker(version, [("a", True, [t0, t1]), ("b", True, [t0])])
        coordinator.add_as_broker(version, [("a", True, [t0, gone]), ("b", False, [gone, t1])])
        coordinator.add_as_broker(version, [("b", False, [t0]), ("c", False, internal)])
        coordinator.add_as_broker(version, [("unknown", True, [t0]), ("unseen", False, [t0])])
        coordinator.add_as_broker(version, [("a", True, [t0])], epoch_ahead=1)
        coordinator.add_as_broker(version, [("b", False, [t0, t1])], epoch_ahead=-1)
        coordinator.add_as_broker(version, [("", True, [t0])])
    for version in range(5):
        coordinator.add_offsets(version, "a", "g")
        coordinator.add_offsets(version, "a", "")
        coordinator.add_offsets(version, "", "g")
        coordinator.add_offsets(version, "unknown", "g")
        coordinator.add_offsets(version, "a", "g", epoch_ahead=1)
    for version in (3, 4, 5):
        coordinator.init(version, producer_id=5)
        coordinator.init(version, producer_epoch=5)
        coordinator.init(version, transactional_id=None, producer_id=5)
        coordinator.init(version, transactional_id="", producer_id=5, producer_epoch=1)
        coordinator.init(version, transactional_id="")
        coordinator.init(version, transactional_id=None, transaction_timeout_ms=-5)
    for version in range(1, 7):
        coordinator.find(version, 1, "a")
        coordinator.find(version, 1, "")
    coordinator.wire.close()
    return coordinator.log


@pytest.fixture(scope="module")
def heard_from_apache(
    apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    with LiveBroker(apache, tmp_path_factory.mktemp("apache"), SETTINGS) as live:
        yield _heard_from(live)


def _heard_from(live: LiveNode) -> list[str]:
    live.format()
    live.start()
    create_topic(live.address, "t", 3)
    wait_for_coordinator(live.address)
    with WireClient(live.address) as wire:
        groups = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        wait_for(lambda: wire.ask(groups).coordinators[0].error_code == 0, "group coordinator")
    return conversation(live.address)


def test_the_coordinator_answers_like_apaches(heard_from_apache: list[str], tmp_path: Path) -> None:
    with LiveMoldau(tmp_path, SETTINGS) as live:
        log = _heard_from(live)
    assert log == heard_from_apache
