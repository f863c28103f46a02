"""The load under which nodes are killed: idempotent producers and members of a group, each in its
own thread, that continue despite every kill.
"""

import random
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from system.node.kill_history import History, value_of
from system.node.questions import Place

FLUSH_DEADLINE_S = 120
JOIN_DEADLINE_S = 120
_IN_FLIGHT = 5
_UNANSWERED_MAX = 100
_PAUSE_S = 0.004
_RECONNECTS = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


def _quiet(_error: KafkaError) -> None:
    """Errors of a broker that is down are expected here."""


def _contents(message: Message) -> tuple[Place, int, bytes]:
    """The offset is -1 if the broker did not return it."""
    topic, partition, value = message.topic(), message.partition(), message.value()
    assert topic is not None
    assert partition is not None
    assert value is not None
    offset = message.offset()
    return (topic, partition), -1 if offset is None else offset, value


class LoadThread(threading.Thread):
    """`finish` ends it and re-raises its failure."""

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - the test tells
            self.history.record_problem(f"{self.name} died of {error!r}")

    def work(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.stopped.set()
        self.join(JOIN_DEADLINE_S)
        assert not self.is_alive(), f"{self.name} does not end"


class ProducerThread(LoadThread):
    """Several requests in flight, a random partition for each record."""

    def __init__(
        self, name: str, address: str, places: Sequence[Place], history: History, seed: str
    ) -> None:
        super().__init__(name, history)
        self._places = places
        self._chance = random.Random(f"{seed} {name}")
        self._unanswered = 0
        self.sent: dict[Place, int] = defaultdict(int)
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": _IN_FLIGHT,
                "linger.ms": 0,
                "batch.num.messages": 5,
                "retry.backoff.ms": 20,
                "message.timeout.ms": FLUSH_DEADLINE_S * 1000,
                "socket.timeout.ms": 10_000,
                "error_cb": _quiet,
                "log_level": 0,
                **_RECONNECTS,
            }
        )

    def work(self) -> None:
        while not self.stopped.wait(_PAUSE_S):
            self._producer.poll(0)
            while self._unanswered >= _UNANSWERED_MAX and not self.stopped.is_set():
                self._producer.poll(0.02)
            for _ in range(self._chance.randint(1, 4)):
                self._send(self._chance.choice(self._places))
        left = self._producer.flush(FLUSH_DEADLINE_S)
        if left:
            self.history.record_problem(f"{self.name}: {left} records were never answered")

    def _send(self, place: Place) -> None:
        value = value_of(self.name, self.sent[place])
        self.sent[place] += 1
        self._unanswered += 1
        self._producer.produce(
            place[0], value, self.name, partition=place[1], on_delivery=self._answered
        )

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        self._unanswered -= 1
        if error is not None:
            self.history.record_problem(f"{self.name}: {message.value()!r} failed: {error}")
            return
        place, offset, value = _contents(message)
        self.history.record_acked(place, offset, value)


class MemberThread(LoadThread):
    """Reads, commits what it has read, and never sees what was committed before."""

    def __init__(self, name: str, address: str, group: str, topic: str, history: History) -> None:
        super().__init__(name, history)
        self._topic = topic
        self._positions: dict[Place, int] = {}
        self._assigned: set[Place] = set()
        self._has_news = False
        self.read_count = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 3_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
                "retry.backoff.ms": 20,
                "socket.timeout.ms": 10_000,
                "error_cb": _quiet,
                "log_level": 0,
                **_RECONNECTS,
            }
        )

    def work(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._gained, on_revoke=self._lost, on_lost=self._lost
        )
        try:
            while not self.stopped.is_set():
                for message in self._consumer.consume(20, timeout=0.05):
                    if message.error() is None:
                        self._look_at(*_contents(message)[:2])
                self._commit()
        finally:
            self._consumer.close()

    def _gained(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned |= {(p.topic, p.partition) for p in partitions}

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in [(p.topic, p.partition) for p in partitions]:
            self._assigned.discard(place)
            self._positions.pop(place, None)

    def _look_at(self, place: Place, offset: int) -> None:
        if place not in self._assigned:
            return
        expected = self._positions.get(place)
        if expected is None:
            promised = self.history.committed_at(place)
            if offset < promised:
                self.history.record_problem(
                    f"{self.name} starts at {place} {offset}, {promised} was committed"
                )
        elif offset != expected:
            self.history.record_problem(f"{self.name} got {place} {offset} instead of {expected}")
        self._positions[place] = offset + 1
        self._has_news = True
        self.read_count += 1

    def _commit(self) -> None:
        if not self._has_news:
            return
        self._has_news = False
        wanted: list[Any] = [
            TopicPartition(topic, index, offset)
            for (topic, index), offset in self._positions.items()
        ]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            # The outcome is unknown.
            return
        for partition in done:
            if partition.error is None:
                place = (partition.topic, partition.partition)
                self.history.record_committed(place, partition.offset)
