"""Producers of one Python process, ours and others', that write the same records to the same node:
the measurements of `clients.py`.
"""

from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any, NamedTuple

from node_clients import create_topics

import moldau
import moldau.aio

VALUE = bytes(100)
FLUSH_S = 300
QUEUE = 1_000_000


class Rate(NamedTuple):
    per_second: float
    cpu_us: float
    """Processor time of the whole process for one record, in microseconds."""


Load = Callable[[int], Any]
"""`count` records in the form that the writer prefers; they exist before the clock starts."""
Writer = Callable[[str, str, Any], None]
"""Bootstrap, topic, load: returns when all records are acknowledged."""


def a_value_each_time(count: int) -> range:
    return range(count)


def a_list(count: int) -> list[bytes]:
    return [VALUE] * count


def a_table(count: int) -> Any:
    import pyarrow as pa

    return pa.table({"value": pa.repeat(pa.scalar(VALUE, pa.binary()), count)})


def with_confluent(bootstrap: str, topic: str, load: range) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": QUEUE,
        }
    )
    for _ in load:
        while True:
            try:
                producer.produce(topic, VALUE)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(FLUSH_S) == 0


def with_kafka_python(bootstrap: str, topic: str, load: range) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
    for _ in load:
        producer.send(topic, VALUE)
    producer.flush(FLUSH_S)
    producer.close()


def with_aiokafka(bootstrap: str, topic: str, load: range) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5
        )
        await producer.start()
        for _ in load:
            await producer.send(topic, VALUE)
        await producer.stop()

    _run(write())


def with_send(bootstrap: str, topic: str, load: range) -> None:
    with moldau.Producer(bootstrap) as producer:
        send = producer.send
        for _ in load:
            send(topic, VALUE)


def with_aio_send(bootstrap: str, topic: str, load: range) -> None:
    async def write() -> None:
        async with moldau.aio.Producer(bootstrap) as producer:
            send = producer.send
            for _ in load:
                _ = await send(topic, VALUE)

    _run(write())


def with_send_many(bootstrap: str, topic: str, load: list[bytes]) -> None:
    with moldau.Producer(bootstrap) as producer:
        producer.send_many(topic, load)


def with_aio_send_many(bootstrap: str, topic: str, load: list[bytes]) -> None:
    async def write() -> None:
        async with moldau.aio.Producer(bootstrap) as producer:
            _ = await producer.send_many(topic, load)

    _run(write())


def with_send_table(bootstrap: str, topic: str, load: Any) -> None:
    with moldau.Producer(bootstrap) as producer:
        producer.send_table(topic, load)


def with_aio_send_table(bootstrap: str, topic: str, load: Any) -> None:
    async def write() -> None:
        async with moldau.aio.Producer(bootstrap) as producer:
            _ = await producer.send_table(topic, load)

    _run(write())


WRITERS: dict[str, tuple[Writer, Load, float]] = {
    # The slow ones write only a part of the records, the fast ones more, so that all take similar
    # times.
    "confluent-kafka": (with_confluent, a_value_each_time, 1),
    "aiokafka": (with_aiokafka, a_value_each_time, 0.1),
    "kafka-python": (with_kafka_python, a_value_each_time, 0.1),
    "moldau send": (with_send, a_value_each_time, 1),
    "moldau.aio send": (with_aio_send, a_value_each_time, 1),
    "moldau send_many": (with_send_many, a_list, 2),
    "moldau.aio send_many": (with_aio_send_many, a_list, 2),
    "moldau send_table": (with_send_table, a_table, 4),
    "moldau.aio send_table": (with_aio_send_table, a_table, 4),
}


def _run(work: Any) -> None:
    import uvloop

    uvloop.run(work)


def rates(port: int, count: int, rounds: int) -> dict[str, Rate]:
    """The best round of each writer; the writers take turns."""
    bootstrap = f"127.0.0.1:{port}"
    best: dict[str, Rate] = {}
    for round_number in range(rounds):
        for name, (write, load_of, share) in WRITERS.items():
            topic = f"p{round_number}-{name.replace(' ', '-')}"
            create_topics(port, [topic])
            write(bootstrap, topic, load_of(100))
            records = int(count * share)
            load = load_of(records)
            began, began_cpu = perf_counter(), process_time()
            write(bootstrap, topic, load)
            wall, cpu = perf_counter() - began, process_time() - began_cpu
            before = best.get(name, Rate(0, float("inf")))
            best[name] = Rate(
                max(before.per_second, records / wall), min(before.cpu_us, cpu / records * 1e6)
            )
    return best


# Latency


def latencies(port: int, per_second: int, seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds from send to its callback, at a steady rate, without lingering."""
    topic = "latency"
    create_topics(port, [topic])
    bootstrap = f"127.0.0.1:{port}"
    return {
        "confluent-kafka": _percentiles(_paced_confluent(bootstrap, topic, per_second, seconds)),
        "moldau": _percentiles(_paced_moldau(bootstrap, topic, per_second, seconds)),
    }


def _paced_confluent(bootstrap: str, topic: str, rate: int, seconds: float) -> list[float]:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    took: list[float] = []
    # Metadata is requested before the clock starts.
    producer.produce(topic, VALUE)
    producer.flush(FLUSH_S)

    def send() -> None:
        sent = perf_counter()
        producer.produce(topic, VALUE, on_delivery=lambda *_: took.append(perf_counter() - sent))

    _pace(send, rate, seconds, producer.poll)
    producer.flush(FLUSH_S)
    return took


def _paced_moldau(bootstrap: str, topic: str, rate: int, seconds: float) -> list[float]:
    from threading import Event

    took: list[float] = []
    pause = Event()
    with moldau.Producer(bootstrap, linger_ms=0) as producer:
        producer.send(topic, VALUE).result(FLUSH_S)

        def send() -> None:
            sent = perf_counter()
            producer.send(topic, VALUE).add_callback(lambda _: took.append(perf_counter() - sent))

        _pace(send, rate, seconds, pause.wait)
    return took


def _pace(
    send: Callable[[], None], rate: int, seconds: float, wait: Callable[[float], object]
) -> None:
    began = perf_counter()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        while (left := due - perf_counter()) > 0:
            wait(left)
        send()


def _percentiles(took: list[float]) -> dict[str, float]:
    ordered = sorted(took)
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {name: round(ordered[int(len(ordered) * share)] * 1000, 3) for name, share in at.items()}
