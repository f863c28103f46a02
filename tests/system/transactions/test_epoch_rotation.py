"""A producer's epochs are 16 bits. Before they are used up its transactional id gets another
producer id, in the middle of its work and despite kills; a producer with the old one is fenced.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.running_node import fresh_name
from support.wire_client import WireClient
from system.transactions.committed_view import is_all_stable, read_committed, wait_until_stable
from system.transactions.decisions import (
    TRANSACTION_LOG,
    batches_of,
    check_all_decided,
    partition_folders,
    read_decisions,
)
from system.transactions.stepping_producer import PLACES, TOPIC
from system.transactions.wire_producer import Style, WireProducer

from moldau.core.coordinator.placement import partition_for
from moldau.core.coordinator.records import encode_record
from moldau.core.transactions.transaction import LAST_CLIENT_EPOCH
from moldau.core.transactions.transaction_records import transaction_record
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.testing import ProcessBroker
from moldau.types import PRODUCER_EPOCH_MAX, ProducerEpoch

STATE_PARTITIONS = 2
SHUT_OUT = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ProcessBroker]:
    """Its files are checked, too."""
    settings = {"transaction.state.log.num.partitions": str(STATE_PARTITIONS)}
    made = ProcessBroker(settings, tmp_path)
    try:
        made.start()
        made.create_topic(TOPIC, len(PLACES))
        yield made
        with WireClient(made.bootstrap) as client:
            wait_until_stable(client, PLACES)
        made.stop()
        check_all_decided(tmp_path, [TOPIC])
    finally:
        made.close()


def grown_old(running: ProcessBroker, epoch: int, style: Style) -> WireProducer:
    """A producer at `epoch`: an earlier life of the node recorded it."""
    producer = WireProducer(running.bootstrap, fresh_name("old"), style)
    producer.init().send(PLACES[0], b"young")
    producer.end(commits=True)
    # The end is in the log when the id can be used again.
    producer.send(PLACES[0], b"given up")
    producer.end(commits=False)
    with WireClient(running.bootstrap) as client:
        wait_until_stable(client, PLACES)
    running.kill()
    _write_epoch(running.directory, producer.transactional_id, epoch)
    running.start()
    producer.hang_up()
    producer.go_on_as(producer.producer_id, epoch)
    return producer


def _write_epoch(log_folder: Path, transactional_id: str, epoch: int) -> None:
    last = read_decisions(log_folder).last[transactional_id]
    record = transaction_record(replace(last, producer_epoch=ProducerEpoch(epoch)), 2)
    key, value = encode_record(record)
    index = partition_for(transactional_id, STATE_PARTITIONS)
    folder = partition_folders(log_folder, TRANSACTION_LOG)[index]
    *_, batch = batches_of(folder)
    data = build_batch(
        [Record(batch.next_offset, last.update_ms, key, value)],
        BatchOptions(partition_leader_epoch=batch.partition_leader_epoch),
    )
    *_, path = sorted(folder.glob("*.log"))
    with path.open("ab") as file:
        file.write(data)


def transact(producer: WireProducer, value: bytes) -> None:
    for place in PLACES:
        producer.send(place, value)
    producer.end(commits=True)


def seen(running: ProcessBroker) -> list[list[bytes]]:
    with WireClient(running.bootstrap) as client:
        wait_until_stable(client, PLACES)
        return [[v for v in read_committed(client, p) if v != b"young"] for p in PLACES]


def test_transactions_continue_with_another_producer_id(running: ProcessBroker) -> None:
    with grown_old(running, LAST_CLIENT_EPOCH - 2, Style.V2) as producer:
        old_id = producer.producer_id
        used = []
        for number in range(5):
            used.append((producer.producer_id, producer.epoch))
            transact(producer, b"%d" % number)
        new_id = producer.producer_id
        assert new_id != old_id
        assert used == [
            *((old_id, epoch) for epoch in range(LAST_CLIENT_EPOCH - 2, LAST_CLIENT_EPOCH + 1)),
            (new_id, 0),
            (new_id, 1),
        ]
        assert seen(running) == [[b"%d" % number for number in range(5)]] * 2


def _just_ask_again(_running: ProcessBroker) -> None:
    pass


def _kill(running: ProcessBroker) -> None:
    running.kill()
    running.start()


@pytest.mark.parametrize("meanwhile", [_just_ask_again, _kill])
def test_a_request_whose_response_was_lost_can_be_retried(
    running: ProcessBroker, meanwhile: Callable[[ProcessBroker], None]
) -> None:
    with grown_old(running, LAST_CLIENT_EPOCH, Style.V2) as producer:
        old_id = producer.producer_id
        for place in PLACES:
            producer.send(place, b"last")
        assert producer.end_unheard(commits=True)
        meanwhile(running)
        producer.end(commits=True)
        assert producer.producer_id != old_id
        assert producer.epoch == 0
        transact(producer, b"first")
        assert seen(running) == [[b"last", b"first"]] * 2


@pytest.mark.parametrize(
    "epoch", [pytest.param(LAST_CLIENT_EPOCH - 1, marks=pytest.mark.slow), LAST_CLIENT_EPOCH]
)
@pytest.mark.parametrize("style", Style)
def test_a_zombie_with_the_last_epochs_is_shut_out(
    running: ProcessBroker, style: Style, epoch: int
) -> None:
    with grown_old(running, epoch, style) as zombie:
        zombie.send(PLACES[0], b"by a zombie")
        with WireProducer(running.bootstrap, zombie.transactional_id, style) as heir:
            heir.init()
            assert heir.epoch < PRODUCER_EPOCH_MAX
            transact(heir, b"by its heir")
            for deed in (
                lambda: zombie.send(PLACES[0], b"by a zombie"),
                lambda: zombie.send(PLACES[1], b"by a zombie"),
                lambda: zombie.end(commits=True),
                lambda: zombie.end(commits=False),
            ):
                with pytest.raises(KafkaError) as refused:
                    deed()
                assert refused.value.code in SHUT_OUT, refused.value
            transact(heir, b"and again")
        assert seen(running) == [[b"by its heir", b"and again"]] * 2
        with WireClient(running.bootstrap) as client:
            assert is_all_stable(client, PLACES)
