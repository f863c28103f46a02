"""Duplicated and late requests: nothing is written twice, and no write opens a transaction that
would never end. Idempotent producers that write to the same partitions lose nothing either.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.running_node import fresh_name
from support.waiting import pause
from support.wire_client import WireClient
from system.node.questions import LATEST, Place, offset_at
from system.transactions.committed_view import is_all_stable, read_committed, wait_until_stable
from system.transactions.decisions import check_all_decided
from system.transactions.sessions import CLIENT_TIMEOUT_S, QUIET, WireSession
from system.transactions.stepping_producer import PLACES, TOPIC
from system.transactions.transfers import Books, Outcome, Teller
from system.transactions.wire_producer import Style, WireProducer
from system.transactions.workers import Problems, finish, wait_for_more

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.testing import ThreadBroker, broker
from moldau.types import ProducerEpoch

ATTEMPTS_MAX = 500
DROPS = 4
RECORDS_MIN = 400


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ThreadBroker]:
    with broker(directory=tmp_path) as made:
        assert isinstance(made, ThreadBroker)
        made.create_topic(TOPIC, len(PLACES))
        yield made
        with WireClient(made.bootstrap) as client:
            wait_until_stable(client, PLACES)
    check_all_decided(tmp_path, [TOPIC])


@pytest.fixture
def client(running: ThreadBroker) -> Iterator[WireClient]:
    with WireClient(running.bootstrap) as connection:
        yield connection


def answer_to(client: WireClient, request: ProduceRequest, style: Style) -> tuple[ErrorCode, int]:
    """Older clients get this error for: retry, an end is in progress."""
    for _ in range(ATTEMPTS_MAX):
        (answer,) = client.ask(request, style.value.produce).responses[0].partition_responses
        if answer.error_code != ErrorCode.NOT_ENOUGH_REPLICAS:
            return ErrorCode(answer.error_code), answer.base_offset
        pause()
    raise AssertionError("the end is under way for ever")


@pytest.mark.parametrize("style", Style)
def test_a_batch_that_comes_again_is_written_once(
    running: ThreadBroker, client: WireClient, style: Style
) -> None:
    with WireProducer(running.bootstrap, fresh_name("repeats"), style) as producer:
        producer.init()
        for number in range(3):
            producer.add(PLACES[0])
            request = producer.produce_request(PLACES[0], b"%d" % number)
            first = producer.send(PLACES[0], b"%d" % number)
            assert answer_to(client, request, style) == (ErrorCode.NONE, first)
            producer.end(commits=True)
        wait_until_stable(client, PLACES)
        assert read_committed(client, PLACES[0]) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("style", Style)
def test_a_write_that_comes_after_the_end_changes_nothing(
    running: ThreadBroker, client: WireClient, style: Style, commits: bool
) -> None:
    """It was sent before the end and delayed, as a duplicate or for the first time."""
    with WireProducer(running.bootstrap, fresh_name("late"), style) as producer:
        producer.init()
        producer.add(PLACES[0])
        written = producer.produce_request(PLACES[0], b"in time")
        producer.send(PLACES[0], b"in time")
        missing = producer.produce_request(PLACES[0], b"too late")
        elsewhere = producer.produce_request(PLACES[1], b"too late")
        producer.end(commits=commits)
        wait_until_stable(client, PLACES)
        ends = [offset_at(client, place, LATEST) for place in PLACES]
        late = [missing, elsewhere]
        if style is Style.V2:
            # In the older version a write of this epoch precedes all later ones: as with Kafka its
            # producer could not continue.
            late.append(written)
        for request in late:
            code, _ = answer_to(client, request, style)
            assert code is not ErrorCode.NONE
        assert is_all_stable(client, PLACES)
        assert [offset_at(client, place, LATEST) for place in PLACES] == ends
        producer.send(PLACES[0], b"next")
        producer.end(commits=True)
        wait_until_stable(client, PLACES)
        seen = [b"in time", b"next"] if commits else [b"next"]
        assert read_committed(client, PLACES[0]) == seen


def _plain_request(producer: WireProducer, place: Place, *, sequence: int) -> ProduceRequest:
    """Idempotent, with the id of a transactional producer, and in no transaction."""
    topic, index = place
    content = build_batch(
        [Record(0, 0, None, b"plain")],
        BatchOptions(
            base_offset=0,
            producer_id=producer.producer_id,
            producer_epoch=ProducerEpoch(producer.epoch),
            base_sequence=sequence,
        ),
    )
    data = PartitionProduceData(index=index, records=content)
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


@pytest.mark.parametrize("style", Style)
def test_a_plain_batch_cannot_slip_into_an_open_transaction(
    running: ThreadBroker, client: WireClient, style: Style
) -> None:
    with WireProducer(running.bootstrap, fresh_name("mixes"), style) as producer:
        producer.init().send(PLACES[0], b"inside")
        code, _ = answer_to(client, _plain_request(producer, PLACES[0], sequence=1), style)
        assert code is ErrorCode.INVALID_TXN_STATE
        producer.end(commits=True)
        wait_until_stable(client, PLACES)
        assert read_committed(client, PLACES[0]) == [b"inside"]


def test_idempotent_and_transactional_producers_share_partitions(running: ThreadBroker) -> None:
    """While connections break all the time, responses get lost and everything is sent again."""
    problems, books = Problems(), Books()
    teller = Teller(
        fresh_name("teller"),
        lambda name: WireSession(running.bootstrap, name, Style.V2),
        PLACES,
        books,
        problems,
    )
    idempotent: Any = Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 3,
            **QUIET,
        }
    )
    failures: list[str] = []

    def answered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    teller.start()
    count = 0
    for _ in range(DROPS):
        wait_for_more(books, 3, problems)
        for _ in range(RECORDS_MIN // DROPS):
            idempotent.produce(
                TOPIC, b"plain %d" % count, partition=count % len(PLACES), on_delivery=answered
            )
            count += 1
        idempotent.poll(0)
        running.drop_connections()
    assert idempotent.flush(CLIENT_TIMEOUT_S) == 0
    finish([teller])
    problems.check()
    assert not failures
    with WireClient(running.bootstrap) as client:
        wait_until_stable(client, PLACES)
        seen = [read_committed(client, place) for place in PLACES]
    transfers: Counter[str] = Counter()
    for index, values in enumerate(seen):
        plain = [value for value in values if value.startswith(b"plain")]
        assert plain == [b"plain %d" % number for number in range(index, count, len(PLACES))]
        for value in values:
            if not value.startswith(b"plain"):
                name, legs, *_ = value.decode().split(" ")
                transfers[name] += 1
                assert transfers[name] <= int(legs)
    assert books.named(Outcome.COMMITTED) <= transfers.keys()
    assert not books.named(Outcome.ABORTED) & transfers.keys()
