"""One log directory, coordinated in turns by Moldau and by Apache Kafka: members continue, and
offsets of every kind are kept.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from interop.apache import ApacheOracle
from interop.group_talk import Conversation
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from support.waiting import wait_for

pytestmark = pytest.mark.interop

RECORDS = 10


class Talk:
    """The same clients, with either kind of node."""

    def __init__(self, address: str) -> None:
        self._conversation = Conversation(address)

    def reconnect(self) -> None:
        for name in list(self._conversation.clients):
            self._conversation.wire.deafen(name)

    def hears(self, line: str) -> str:
        """The response to one request."""
        conversation = self._conversation
        conversation.lines = []
        conversation.run(line)
        name = line.split(maxsplit=1)[0]
        if conversation.wire.waits(name):
            conversation.hear([name])
        return conversation.lines[-1]

    def close(self) -> None:
        self._conversation.wire.close()


def consumer(node: LiveNode, group: str, **settings: str) -> Any:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    return Consumer(
        {"bootstrap.servers": node.address, "group.id": group, "log_level": 0}
        | {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        | config
    )


def read_all_and_commit(node: LiveNode, group: str, **settings: str) -> None:
    reader = consumer(node, group, **settings)
    try:
        reader.subscribe(["t"])
        seen = 0

        def done() -> bool:
            nonlocal seen
            message = reader.poll(0.2)
            seen += message is not None and message.error() is None
            return seen == RECORDS

        wait_for(done, f"{RECORDS} records")
        reader.commit(asynchronous=False)
    finally:
        reader.close()


def committed(node: LiveNode, group: str) -> list[int]:
    reader = consumer(node, group)
    try:
        places = [TopicPartition("t", 0), TopicPartition("t", 1)]
        return [place.offset for place in reader.committed(places, timeout=60)]
    finally:
        reader.close()


def commit_in_transaction(node: LiveNode, group: str, offset: int) -> None:
    producer = Producer(
        {"bootstrap.servers": node.address, "transactional.id": "mover", "log_level": 0}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    reader = consumer(node, group)
    metadata = reader.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition("t", 1, offset)], metadata, 60)
    producer.commit_transaction(60)
    reader.close()


def taking_turns(apache: ApacheOracle, folder: Path) -> tuple[LiveMoldau, LiveBroker]:
    """Two nodes with one identity: the same directory, settings and ports."""
    ours, theirs = LiveMoldau(folder), LiveBroker(apache, folder)
    ours.address, ours.controller_address = theirs.address, theirs.controller_address
    return ours, theirs


def test_groups_continue_under_either_coordinator(apache: ApacheOracle, tmp_path: Path) -> None:
    ours, theirs = taking_turns(apache, tmp_path)
    talk = Talk(ours.address)

    def hand_over(to: LiveNode, stop: Callable[[], None]) -> None:
        stop()
        talk.reconnect()
        to.start()
        wait_for(lambda: talk.hears("z finds") == "z finds: NONE a broker", "the coordinator")
        wait_for(lambda: "COORDINATOR" not in talk.hears("a fetches"), "the group's shard")

    with ours, theirs:
        ours.format()
        ours.start()
        ours.create_topic("t", partitions=2)
        producer = ours.producer()
        for number in range(RECORDS):
            producer.produce("t", b"x", partition=number % 2)
        assert producer.flush(60) == 0

        wait_for(lambda: talk.hears("z finds") == "z finds: NONE a broker", "the coordinator")
        joined = "a joined generation=1 range leader=a members=a"
        wait_for(lambda: talk.hears("a joins static=one session=300000") == joined, "joining")
        assert talk.hears("a syncs a=everything") == "a synced everything"
        assert talk.hears("a commits t-0=5/note") == "a committed: NONE"
        assert talk.hears("b commits group=h t-1=3") == "b committed: NONE"
        read_all_and_commit(ours, "readers")

        hand_over(theirs, ours.stop)
        assert talk.hears("a beats") == "a beats: NONE"
        assert talk.hears("a syncs") == "a synced everything"
        assert talk.hears("a fetches") == "a fetches: t-0=5/note"
        assert talk.hears("b fetches") == "b fetches: t-1=3"
        assert committed(theirs, "readers") == [5, 5]
        assert talk.hears("a commits t-0=6") == "a committed: NONE"
        read_all_and_commit(theirs, "modern", group_protocol="consumer")
        commit_in_transaction(theirs, "in-transaction", 4)

        hand_over(ours, theirs.stop)
        assert talk.hears("a beats") == "a beats: NONE"
        assert talk.hears("a fetches") == "a fetches: t-0=6"
        assert committed(ours, "modern") == [5, 5]
        assert committed(ours, "in-transaction")[1] == 4
        assert talk.hears("z deletes h") == "z deletes: h=NONE"
        assert talk.hears("a commits t-0=7") == "a committed: NONE"
        assert talk.hears("a leaves static=one") == "a left: NONE"

        # Also after a crash.
        hand_over(theirs, ours.kill)
        assert talk.hears("a fetches") == "a fetches: t-0=7"
        assert talk.hears("z describes g") == "z describes: g Empty consumer/"
        assert talk.hears("z describes h") == "z describes: h Dead GROUP_ID_NOT_FOUND /"
        assert committed(theirs, "modern") == [5, 5]
        # The client must outlive its response.
        admin = theirs.admin()
        groups = admin.list_consumer_groups().result(timeout=60).valid
        assert {group.group_id: group.type.name for group in groups}["modern"] == "CONSUMER"
        theirs.stop()
    talk.close()
