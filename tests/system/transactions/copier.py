"""A process that copies a topic in transactions, until it is killed: its records and its offsets
are committed together. Some transactions are aborted, and now and then it restarts.

`python -m system.transactions.copier ADDRESS NAME SEED`: a dot for every committed transaction.
"""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from system.transactions.sessions import CLIENT_TIMEOUT_S, QUIET

SOURCE, TARGET, GROUP = "source", "target", "copiers"
TARGET_PARTITIONS = 3
_BATCH_MAX = 20
_TESTS = Path(__file__).parents[2]


def value_of(partition: int, offset: int) -> bytes:
    """The value of a record's copy, which names its origin."""
    return b"%d %d" % (partition, offset)


class BeginAnewError(Exception):
    """At random, or after an error that a producer does not survive."""


class Copier:
    def __init__(self, address: str, name: str, chance: random.Random) -> None:
        self._chance = chance
        common = {"bootstrap.servers": address, **QUIET}
        self._consumer: Any = Consumer(
            {
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 2_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 20,
                **common,
            }
        )
        self._producer: Any = Producer(
            {"transactional.id": name, "transaction.timeout.ms": 20_000, "linger.ms": 0, **common}
        )

    def run(self) -> None:
        try:
            self._producer.init_transactions(CLIENT_TIMEOUT_S)
            self._consumer.subscribe([SOURCE])
            while True:
                self._copy()
        finally:
            if self._chance.random() < 0.5:
                self._consumer.close()

    def _copy(self) -> None:
        messages = self._consumer.consume(self._chance.randint(1, _BATCH_MAX), timeout=0.2)
        messages = [each for each in messages if each.error() is None]
        if not messages:
            return
        self._producer.begin_transaction()
        for each in messages:
            self._producer.produce(
                TARGET,
                value_of(each.partition(), each.offset()),
                partition=self._chance.randrange(TARGET_PARTITIONS),
            )
        if self._chance.random() < 0.05:
            raise BeginAnewError
        self._producer.send_offsets_to_transaction(
            self._consumer.position(self._consumer.assignment()),
            self._consumer.consumer_group_metadata(),
            CLIENT_TIMEOUT_S,
        )
        choice = self._chance.random()
        if choice < 0.05:
            raise BeginAnewError
        if choice < 0.25:
            self._producer.abort_transaction(CLIENT_TIMEOUT_S)
            self._rewind()
            return
        self._producer.commit_transaction(CLIENT_TIMEOUT_S)
        sys.stdout.write(".")
        sys.stdout.flush()

    def _rewind(self) -> None:
        """Back to the last commit."""
        assigned = self._consumer.assignment()
        for place in self._consumer.committed(assigned, CLIENT_TIMEOUT_S):
            offset = max(place.offset, 0)
            self._consumer.seek(TopicPartition(place.topic, place.partition, offset))


def start_copier(address: str, name: str, seed: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.stdout").open("ab") as output, (folder / name).open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "system.transactions.copier", address, name, seed],
            stdout=output,
            stderr=errors,
            cwd=_TESTS,
        )


def main() -> None:
    address, name, seed = sys.argv[1:]
    chance = random.Random(seed)
    while True:
        try:
            Copier(address, name, chance).run()
        except (KafkaException, BeginAnewError) as error:
            sys.stderr.write(f"begins anew after {error!r}\n")


if __name__ == "__main__":
    main()
