"""How fast do our consumers read compared with confluent-kafka, aiokafka and kafka-python, in one
run, on the same node?

    python benchmarks/clients_consuming.py [--rounds 3] [--records 1000000] [--peers "moldau os"]

Records of 100 bytes in one partition, read from the beginning by the only member of a group, from
the first records to the last. The processor time of the client's process per record is shown too;
on a busy machine it is more reliable than the rate. Ratios are to confluent-kafka's lists of 500
(`consume`), its fastest API; above 1 Moldau is better. Then, at 1,000 records a second, the time
from the producer's call to the consumer's loop, and the memory of a waiting consumer.
"""

import argparse
from collections.abc import Callable, Mapping
from itertools import count as numbers
from time import perf_counter, process_time
from typing import Any

import uvloop
from clients import LATENCY_RATE, show_rates
from clients_producing import Rate
from consumers_waiting import idle_kilobytes, latencies
from kept_results import keep
from node_clients import create_topics
from node_peers import running_peers

import moldau
import moldau.aio

TOPIC = "read"
WAITING_TOPIC = "waiting"
IDLE_TOPIC = "idle"
VALUE = bytes(100)
PATIENCE_S = 30
_groups = numbers()

Lap = Callable[[int], None]
"""Called with the number of records received; the first call starts the clock."""
Reader = Callable[[str, str, int, Lap], None]
"""Bootstrap, group, number of records, and the callback."""


def with_confluent(bootstrap: str, group: str, count: int, lap: Lap) -> None:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    found = 0
    while found < count:
        messages = consumer.consume(500, PATIENCE_S)
        for message in messages:
            message.value()
        found += len(messages)
        lap(found)
    consumer.close()


def with_confluent_poll(bootstrap: str, group: str, count: int, lap: Lap) -> None:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    found = 0
    while found < count:
        if consumer.poll(PATIENCE_S) is not None:
            found += 1
            if found % 500 == 0 or found == count:
                lap(found)
    consumer.close()


def with_kafka_python(bootstrap: str, group: str, count: int, lap: Lap) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    found = 0
    while found < count:
        found += sum(map(len, consumer.poll(PATIENCE_S * 1000).values()))
        lap(found)
    consumer.close()


def with_aiokafka(bootstrap: str, group: str, count: int, lap: Lap) -> None:
    from aiokafka import AIOKafkaConsumer

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        await consumer.start()
        found = 0
        while found < count:
            records = await consumer.getmany(timeout_ms=PATIENCE_S * 1000, max_records=500)
            found += sum(map(len, records.values()))
            lap(found)
        await consumer.stop()

    uvloop.run(read())


def _settings(group: str) -> dict[str, Any]:
    return {"group_id": group, "auto_offset_reset": "earliest"}


def with_poll(bootstrap: str, group: str, count: int, lap: Lap) -> None:
    with moldau.Consumer(bootstrap, **_settings(group)) as consumer:
        consumer.subscribe(TOPIC)
        found = 0
        while found < count:
            records = consumer.poll(PATIENCE_S)
            for record in records:
                record.value  # noqa: B018 - as a user would
            found += len(records)
            lap(found)


def with_loop(bootstrap: str, group: str, count: int, lap: Lap) -> None:
    with moldau.Consumer(bootstrap, **_settings(group)) as consumer:
        consumer.subscribe(TOPIC)
        for found, _ in enumerate(consumer, 1):
            if found % 500 == 0 or found == count:
                lap(found)
                if found == count:
                    break


def with_aio_poll(bootstrap: str, group: str, count: int, lap: Lap) -> None:
    async def read() -> None:
        async with moldau.aio.Consumer(bootstrap, **_settings(group)) as consumer:
            consumer.subscribe(TOPIC)
            found = 0
            while found < count:
                found += len(await consumer.poll(PATIENCE_S))
                lap(found)

    uvloop.run(read())


def with_aio_loop(bootstrap: str, group: str, count: int, lap: Lap) -> None:
    async def read() -> None:
        async with moldau.aio.Consumer(bootstrap, **_settings(group)) as consumer:
            consumer.subscribe(TOPIC)
            found = 0
            async for _ in consumer:
                found += 1
                if found % 500 == 0 or found == count:
                    lap(found)
                    if found == count:
                        break

    uvloop.run(read())


def with_arrow(bootstrap: str, group: str, count: int, lap: Lap) -> None:
    with moldau.Consumer(bootstrap, **_settings(group)) as consumer:
        consumer.subscribe(TOPIC)
        found = 0
        while found < count:
            found += consumer.fetch_arrow(PATIENCE_S).num_rows
            lap(found)


READERS: dict[str, tuple[Reader, float]] = {
    # The slow ones read only a part of the records, so that all take similar times.
    "confluent-kafka": (with_confluent, 1),
    "confluent-kafka poll": (with_confluent_poll, 1),
    "aiokafka": (with_aiokafka, 0.2),
    "kafka-python": (with_kafka_python, 0.2),
    "moldau poll": (with_poll, 1),
    "moldau iteration": (with_loop, 1),
    "moldau.aio poll": (with_aio_poll, 1),
    "moldau.aio iteration": (with_aio_loop, 1),
    "moldau fetch_arrow": (with_arrow, 1),
}


def measure(read: Reader, bootstrap: str, count: int) -> Rate:
    laps: list[tuple[int, float, float]] = []
    read(
        bootstrap,
        f"group-{next(_groups)}",
        count,
        lambda found: laps.append((found, perf_counter(), process_time())) if found else None,
    )
    (first, began, began_cpu), (last, ended, ended_cpu) = laps[0], laps[-1]
    records = last - first
    return Rate(records / (ended - began), (ended_cpu - began_cpu) / records * 1e6)


def fill(bootstrap: str, count: int) -> None:
    import pyarrow as pa

    table = pa.table({"value": pa.repeat(pa.scalar(VALUE, pa.binary()), count)})
    with moldau.Producer(bootstrap) as producer:
        producer.send_table(TOPIC, table)


def rates(port: int, count: int, rounds: int) -> dict[str, Rate]:
    """The best round of each reader; the readers take turns."""
    bootstrap = f"127.0.0.1:{port}"
    create_topics(port, [TOPIC])
    fill(bootstrap, count)
    best: dict[str, Rate] = {}
    for _ in range(rounds):
        for name, (read, share) in READERS.items():
            found = measure(read, bootstrap, int(count * share))
            before = best.get(name, Rate(0, float("inf")))
            best[name] = Rate(
                max(before.per_second, found.per_second), min(before.cpu_us, found.cpu_us)
            )
    return best


def show(rows: Mapping[str, object]) -> None:
    for name, row in rows.items():
        print(f"  {name:20} {row}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--peers", default="moldau os,apache")
    options = parser.parse_args()
    results: dict[str, object] = {}
    with running_peers(options.peers.split(",")) as peers:
        for peer in peers:
            print(f"Consuming from {peer.label}")
            rows = show_rates(rates(peer.port, options.records, options.rounds))
            create_topics(peer.port, [WAITING_TOPIC, IDLE_TOPIC])
            print(f"  Milliseconds from send to loop at {LATENCY_RATE} records a second")
            times = latencies(peer.bootstrap, WAITING_TOPIC, LATENCY_RATE, seconds=10)
            show(times)
            print("  Kilobytes of a consumer that waits")
            memory = idle_kilobytes(peer.bootstrap, IDLE_TOPIC)
            show(memory)
            results[peer.label] = {
                "consuming": rows,
                "end_to_end_latency_ms": times,
                "idle_kilobytes": memory,
            }
    keep("clients_consuming", records=options.records, rounds=options.rounds, peers=results)


if __name__ == "__main__":
    main()
