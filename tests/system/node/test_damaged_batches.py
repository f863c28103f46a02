"""One bit of a log is flipped on the disk. Regardless of the bit: all other records are served,
appends continue, and the operator reads what is lost and what to do.
"""

import re
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest
from cli.kafka_command import KafkaCommand
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from support.running_node import QUICK_SETTINGS, RunningNode, free_port
from support.wire_client import WireClient
from system.node.questions import create_topics, fetch, offset_at, produce
from system.node.test_disk_lines import lines_with

import moldau
from moldau.errors import DamagedRecordsError
from moldau.protocol.error_codes import ErrorCode
from moldau.types import TopicPartition

PLACE = ("orders", 0)
COUNT = 25
TIMEOUT_S = 30.0


def value(number: int) -> bytes:
    return b"%d " % number * 35_000


def fill(node: RunningNode) -> None:
    """Batches of one record, ten or so in each segment."""
    with WireClient(node.address) as client:
        create_topics(client, {"orders": 1}, {"segment.bytes": str(1 << 20)})
        for number in range(COUNT):
            assert produce(client, "orders", value(number), timestamp_ms=1_000 + number)[0] == 0
    # Only from here on does a start after a crash know that it was on the disk.
    node.stop()
    node.start()


class Batch(NamedTuple):
    path: Path
    position: int
    offset: int


def batches(node: RunningNode) -> list[Batch]:
    found: list[Batch] = []
    for path in sorted(node.log_folder.glob("orders-0/*.log")):
        content, position = path.read_bytes(), 0
        while position < len(content):
            found.append(Batch(path, position, int.from_bytes(content[position:][:8], "big")))
            position += 12 + int.from_bytes(content[position + 8 :][:4], "big")
    return found


def flip(batch: Batch, place: int, mask: int = 1) -> None:
    with batch.path.open("r+b") as file:
        file.seek(batch.position + place)
        (before,) = file.read(1)
        file.seek(batch.position + place)
        file.write(bytes([before ^ mask]))


def readable(client: WireClient) -> list[int]:
    """The offsets of all records that a reader gets when it skips the damage."""
    end = offset_at(client, PLACE, -1)
    found: list[int] = []
    offset = 0
    while offset < end:
        fetched = fetch(client, PLACE, offset)
        if fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
            offset += 1
            continue
        assert fetched.error_code == 0, (offset, fetched.error_code)
        assert fetched.next_offset > offset
        for record in fetched.records:
            assert record.value == value(record.offset)
        found += [record.offset for record in fetched.records]
        offset = fetched.next_offset
    return found


# The position of the damage in its batch: in the records, or in a field that is needed to find
# batches.
RECORDS, LENGTH, MAGIC, CHECKSUM, LAST_OFFSET_DELTA = 5_000, 10, 16, 18, 24
# In the base offset: beyond all offsets there are, and back to that of the batch before.
LEAP, FALL = 2, 7
SEALED, LAST_OF_FIRST, LAST = 4, 12, COUNT - 1
FLIPS = {
    1: MAGIC,
    3: LENGTH,
    SEALED: RECORDS,
    6: CHECKSUM,
    8: LAST_OFFSET_DELTA,
    LAST_OF_FIRST: LEAP,
    15: FALL,
    21: RECORDS,
    23: LENGTH,
    LAST: RECORDS,
}


@pytest.mark.parametrize("stop", ["stopped", "killed"])
def test_flipped_bits_cost_their_batches_alone(tmp_path: Path, stop: str) -> None:
    with RunningNode(tmp_path, QUICK_SETTINGS) as node:
        node.start()
        fill(node)
        node.stop() if stop == "stopped" else node.kill()
        written = batches(node)
        assert len({batch.path for batch in written}) > 2
        assert written[LAST_OF_FIRST].path != written[LAST_OF_FIRST + 1].path
        for which, place in FLIPS.items():
            flip(written[which], place)
        node.start()
        with WireClient(node.address) as client:
            sound = [number for number in range(COUNT) if number not in FLIPS]
            assert readable(client) == sound
            assert produce(client, "orders", value(COUNT)) == (0, COUNT)
            assert readable(client) == [*sound, COUNT]
        told = KafkaCommand(node.address)("topics", "describe", "orders").output
        assert "seek to 2, 5, 7, 9, 13, 16, 22 or 25 to skip them" in told
        node.stop()
        for which, place in FLIPS.items():
            flip(written[which], place)
        node.start()
        with WireClient(node.address) as client:
            assert readable(client) == list(range(COUNT + 1)), "the files are mended"


def consume(consumer: Consumer, count: int) -> list[int]:
    """Offsets, as many or up to an error."""
    found: list[int] = []
    while len(found) < count:
        (message,) = consumer.consume(1, TIMEOUT_S)
        error, offset = message.error(), message.offset()
        if error is not None:
            assert error.code() == ErrorCode.CORRUPT_MESSAGE
            break
        assert offset is not None
        assert message.value() == value(offset)
        found.append(offset)
    return found


def test_clients_read_around_damage_and_operators_are_notified(tmp_path: Path) -> None:
    metrics_port = free_port()
    settings = QUICK_SETTINGS | {"moldau.metrics.port": str(metrics_port)}
    with RunningNode(tmp_path, settings) as node:
        node.start()
        fill(node)
        node.stop()
        batch = batches(node)[SEALED]
        flip(batch, 5_000)
        node.start()
        assert not lines_with(node, "damaged")

        rest = list(range(SEALED + 1, COUNT))
        consumer = Consumer({"bootstrap.servers": node.address, "group.id": "g", "log_level": 0})
        consumer.assign([ConfluentPartition("orders", 0, 0)])
        assert consume(consumer, COUNT) == list(range(SEALED))
        consumer.seek(ConfluentPartition("orders", 0, SEALED + 1))
        assert consume(consumer, len(rest)) == rest
        consumer.close()

        (line,) = lines_with(node, "orders-0 is damaged")
        assert f"offsets {SEALED} to {SEALED} cannot be read" in line
        assert str(batch.path) in line
        assert f"a seek to {SEALED + 1}" in line
        check_shown(node, metrics_port)
        node.kill()
        node.start()
        assert len(lines_with(node, "orders-0 is damaged")) == 2, "a start repeats it"
        check_shown(node, metrics_port)
        check_our_consumer(node, rest)


def check_shown(node: RunningNode, metrics_port: int) -> None:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{metrics_port}/metrics", timeout=TIMEOUT_S
    ) as answer:
        text = answer.read().decode()
    assert re.search(r"^moldau_damage_found_total 1.0$", text, re.MULTILINE)
    assert 'moldau_damaged_ranges{partition="0",topic="orders"} 1.0' in text
    command = KafkaCommand(node.address)
    told = f"orders-0: offsets {SEALED} to {SEALED} cannot be read; seek to {SEALED + 1}"
    assert told in command("topics", "describe", "orders").output
    (topic,) = command.json("topics", "describe", "orders")
    assert topic["partitions"][0]["damagedOffsets"] == [{"first": SEALED, "last": SEALED}]
    assert "damaged: orders-0 on broker 1: offsets 4 to 4" in command("cluster", "describe").output
    (damaged,) = command.json("cluster", "describe")["damaged"]
    assert damaged == {
        "brokerId": 1,
        "topic": "orders",
        "partition": 0,
        "offsets": [{"first": SEALED, "last": SEALED}],
        "offline": False,
    }


def check_our_consumer(node: RunningNode, rest: list[int]) -> None:
    partition = TopicPartition("orders", 0)
    with moldau.Consumer(node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        assert poll(consumer, SEALED) == list(range(SEALED))
        with pytest.raises(DamagedRecordsError, match="damaged at offset 4") as stopped:
            consumer.poll(TIMEOUT_S)
        assert stopped.value.offset == SEALED
        consumer.seek(partition, SEALED + 1)
        assert poll(consumer, len(rest)) == rest


def poll(consumer: moldau.Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [record.offset for record in consumer.poll(TIMEOUT_S)]
    return found
