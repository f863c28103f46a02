"""How fast are transactions, compared with Apache Kafka 4.3.1 in the same run?

    python benchmarks/transactions.py [--rounds 3] [--quick]
                                      [--peers "moldau os,moldau group,apache,apache synced"]

A transaction is one batch of 1, 10 or 100 records of 100 bytes and its commit. `wire` uses the
newest protocol (transaction.version 2) over raw connections, so that the client costs next to
nothing; `confluent-kafka` uses the older one, as librdkafka does. A commit's time is the client's
wait for EndTxn. Moldau syncs the transaction's decision before it answers, and with the policy
`group` the records too; Apache Kafka syncs neither, `apache synced` both: compare that with
`group`. A ratio above 1 is in Moldau's favour.
"""

import argparse
import asyncio
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import NamedTuple

import uvloop
from async_connection import Connection
from confluent_kafka import Producer
from kept_results import keep
from node_clients import create_topics
from node_peers import Peer, running_peers

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.types import ProducerEpoch

TOPIC = "transactions"
VALUE = bytes(100)
DEADLINE_S = 60
RETRY_S = 0.002
TRANSACTION_COORDINATOR = 1
INIT_PRODUCER_ID_VERSION = 5
PRODUCE_VERSION = 12
END_TXN_VERSION = 5
UNDER_WAY = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Errors after which a client retries."""


class Figure(NamedTuple):
    case: str
    unit: str
    value: float
    less_is_better: bool = False


class Size(NamedTuple):
    """The amount of work; the smaller size is for trying the script."""

    transactions: dict[int, int]
    """By the number of records in each."""
    producers: tuple[int, ...] = (1, 10)


FULL = Size({1: 500, 10: 500, 100: 300})
QUICK = Size({1: 50, 10: 50, 100: 30})


class TransactionalProducer:
    """One batch in flight."""

    def __init__(self, connection: Connection, transactional_id: str, partition: int) -> None:
        self._connection = connection
        self._transactional_id = transactional_id
        self._partition = partition
        self._producer_id = self._epoch = -1
        self.commit_ms: list[float] = []

    async def begin(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=DEADLINE_S * 1000
        )
        while True:
            answer = await self._connection.ask(request, INIT_PRODUCER_ID_VERSION)
            if not await _must_try_again(answer.error_code):
                break
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def transact(self, records: int) -> None:
        await self._produce(records)
        began = perf_counter()
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        while True:
            answer = await self._connection.ask(request, END_TXN_VERSION)
            if not await _must_try_again(answer.error_code):
                break
        self.commit_ms.append((perf_counter() - began) * 1000)
        # Each transaction has an epoch of its own, in which sequences start again.
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def _produce(self, records: int) -> None:
        batch = build_batch(
            [Record(number, 0, None, VALUE) for number in range(records)],
            BatchOptions(
                producer_id=self._producer_id,
                producer_epoch=ProducerEpoch(self._epoch),
                base_sequence=0,
                is_transactional=True,
            ),
        )
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=DEADLINE_S * 1000,
            topic_data=[
                TopicProduceData(
                    name=TOPIC,
                    partition_data=[PartitionProduceData(index=self._partition, records=batch)],
                )
            ],
        )
        while True:
            answer = await self._connection.ask(request, PRODUCE_VERSION)
            (partition,) = answer.responses[0].partition_responses
            if not await _must_try_again(partition.error_code):
                break


async def _must_try_again(code: int) -> bool:
    """Pauses before a retry."""
    if not code:
        return False
    if code not in UNDER_WAY:
        raise SystemExit(f"a transaction failed: {ErrorCode(code).name}")
    await asyncio.sleep(RETRY_S)
    return True


async def over_the_wire(
    peer: Peer, label: str, producers: int, records: int, count: int
) -> tuple[float, list[float]]:
    """Transactions per second, and the time of each commit."""
    made = []
    for number in range(producers):
        connection = await Connection.open(peer.port)
        made.append(TransactionalProducer(connection, f"{label}-{number}", 0))
    await asyncio.gather(*(producer.begin() for producer in made))

    async def run(producer: TransactionalProducer) -> None:
        for _ in range(count // producers):
            await producer.transact(records)

    async with asyncio.timeout(DEADLINE_S * 5):
        began = perf_counter()
        await asyncio.gather(*(run(producer) for producer in made))
        took = perf_counter() - began
    times = [each for producer in made for each in producer.commit_ms]
    return len(times) / took, times


def through_librdkafka(peer: Peer, label: str, records: int, count: int) -> float:
    """Transactions per second."""
    producer = Producer(
        {"bootstrap.servers": peer.bootstrap, "transactional.id": label, "linger.ms": 0}
    )
    producer.init_transactions(DEADLINE_S)

    def transact() -> None:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(TOPIC, VALUE, partition=0)
        producer.commit_transaction(DEADLINE_S)

    transact()
    began = perf_counter()
    for _ in range(count):
        transact()
    return count / (perf_counter() - began)


def measure(peer: Peer, size: Size, label: str) -> Iterator[Figure]:
    for records, count in size.transactions.items():
        for producers in size.producers:
            name = f"{label}-{records}-{producers}"
            rate, times = uvloop.run(over_the_wire(peer, name, producers, records, count))
            case = f"wire, {records} records, {producers} producers"
            yield Figure(case, "transactions/s", rate)
            if producers == 1:
                times.sort()
                yield Figure(f"{case}: commit", "ms, p50", median(times), True)
                yield Figure(f"{case}: commit", "ms, p99", times[int(len(times) * 0.99)], True)
        rate = through_librdkafka(peer, f"{label}-{records}-librdkafka", records, count)
        yield Figure(f"confluent-kafka, {records} records", "transactions/s", rate)


async def warm_up(peer: Peer) -> None:
    """The first request creates the internal topic of transactions."""
    connection = await Connection.open(peer.port)
    request = FindCoordinatorRequest(key_type=TRANSACTION_COORDINATOR, coordinator_keys=["x"])
    async with asyncio.timeout(DEADLINE_S):
        while await _must_try_again((await connection.ask(request)).coordinators[0].error_code):
            pass
    await over_the_wire(peer, "warm-up", 1, 1, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="moldau os,moldau group,apache,apache synced")
    parser.add_argument("--quick", action="store_true", help="less of everything; kept nowhere")
    options = parser.parse_args()
    labels = options.peers.split(",")
    results: dict[Figure, dict[str, list[float]]] = {}
    with running_peers(labels) as peers:
        for peer in peers:
            create_topics(peer.port, [TOPIC])
            uvloop.run(warm_up(peer))
        for number in range(options.rounds):
            for peer in peers:
                size = QUICK if options.quick else FULL
                for figure in measure(peer, size, f"round-{number}"):
                    by_peer = results.setdefault(figure._replace(value=0), {})
                    by_peer.setdefault(peer.label, []).append(figure.value)
    rows = [_row(figure, by_peer) for figure, by_peer in results.items()]
    for row in rows:
        print(row)
    if not options.quick:
        keep("transactions", rounds=options.rounds, rows=[row._asdict() for row in rows])


class Row(NamedTuple):
    case: str
    unit: str
    medians: dict[str, float]
    ratios: dict[str, float]

    def __str__(self) -> str:
        values = "".join(f"{label} {value:,.2f}  " for label, value in self.medians.items())
        ratios = "  ".join(f"{label} {ratio:.2f}x" for label, ratio in self.ratios.items())
        return f"{self.case:44}{self.unit:16}{values:84}{ratios}"


def _row(figure: Figure, by_peer: dict[str, list[float]]) -> Row:
    medians = {label: round(median(values), 3) for label, values in by_peer.items()}
    ratios: dict[str, float] = {}
    for label, ours in medians.items():
        for peer in ("apache", "apache synced"):
            theirs = medians.get(peer)
            if label.startswith("moldau") and theirs and ours:
                ratio = theirs / ours if figure.less_is_better else ours / theirs
                ratios[f"{label} : {peer}"] = round(ratio, 2)
    return Row(figure.case, figure.unit, medians, ratios)


if __name__ == "__main__":
    main()
