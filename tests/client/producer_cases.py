"""The cases of the producers, blocking and asyncio, for any broker: Moldau here, Apache Kafka in
tests/interop. The fixture `bootstrap` has the address; librdkafka reads the records.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import pyarrow as pa
import pytest
from client.produced import PATIENCE_S, numbered
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import Producer as Peer
from confluent_kafka import TopicPartition as PeerPartition

import moldau
import moldau.aio
from moldau.admin import NewTopic
from moldau.client.loop_thread import LoopThread
from moldau.errors import ErrorCode, KafkaError, MoldauError, MustAbortError, MustStopError
from moldau.types import TopicPartition

_numbers = itertools.count()
LONGEST_S = 120
Maker = Callable[..., Any]
Places = dict[int, list[Any]]


class AwaitedDelivery:
    """A delivery of the asyncio producer with the blocking interface."""

    def __init__(self, thread: LoopThread, delivery: Any) -> None:
        self._thread = thread
        self.delivery = delivery

    def result(self, timeout: float | None = None) -> Any:
        async def wait() -> Any:
            return await self.delivery

        if self.delivery.done():
            return self.delivery.result()
        return self._thread.run(wait(), timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        try:
            self.result(timeout)
        except MoldauError as error:
            return error
        return None

    def add_callback(self, fn: Callable[[Any], object]) -> None:
        self._thread.call(lambda: self.delivery.add_callback(fn))


class BlockingAioProducer:
    """`moldau.aio.Producer` in a loop of its own, with the blocking interface."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self._thread = LoopThread("aio-producer")
        self._producer = moldau.aio.Producer(bootstrap, **settings)
        self._thread.run(self._producer.start())

    def send(self, *args: Any, **named: Any) -> AwaitedDelivery:
        return AwaitedDelivery(self._thread, self._thread.run(self._producer.send(*args, **named)))

    def send_many(self, *args: Any, **named: Any) -> AwaitedDelivery:
        sent = self._thread.run(self._producer.send_many(*args, **named))
        return AwaitedDelivery(self._thread, sent)

    def send_table(self, *args: Any, **named: Any) -> AwaitedDelivery:
        sent = self._thread.run(self._producer.send_table(*args, **named))
        return AwaitedDelivery(self._thread, sent)

    def metrics(self) -> dict[str, float]:
        return self._producer.metrics()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        block = self._producer.transaction()
        self._thread.run(block.__aenter__())
        try:
            yield
        except BaseException as error:
            self._thread.run(block.__aexit__(type(error), error, None))
            raise
        self._thread.run(block.__aexit__(None, None, None))

    def __getattr__(self, name: str) -> Any:
        """All other methods have the same names and arguments."""
        step = getattr(self._producer, name)
        return lambda *args: self._thread.run(step(*args), LONGEST_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.run(self._producer.close())
        self._thread.close()


@pytest.fixture(params=["blocking", "aio"])
def make(request: pytest.FixtureRequest, bootstrap: str) -> Maker:
    make: Any = moldau.Producer if request.param == "blocking" else BlockingAioProducer
    return lambda **settings: make(bootstrap, **settings)


@pytest.fixture
def new_topic(bootstrap: str) -> Callable[..., str]:
    def create(partitions: int = 1, **configs: str) -> str:
        name = f"produced-{os.getpid()}-{next(_numbers)}"
        named = {key.replace("_", "."): value for key, value in configs.items()}
        with moldau.Admin(bootstrap) as admin:
            wanted = NewTopic(name=name, partitions=partitions, configs=named)
            made = admin.create_topics([wanted])[name]
            assert not isinstance(made, Exception), made
        return name

    return create


@pytest.fixture
def read(bootstrap: str) -> Iterator[Callable[..., Places]]:
    """The messages of a topic as librdkafka reads them, by partition; of transactions, only
    committed ones.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "check.crcs": True,
            "isolation.level": "read_committed",
        }
    )

    def messages(topic: str, partitions: int = 1) -> Places:
        consumer.assign([PeerPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
        found: Places = {number: [] for number in range(partitions)}
        ended: set[int] = set()
        while len(ended) < partitions:
            (message,) = consumer.consume(1, PATIENCE_S)
            number: Any = message.partition()
            if message.error() is None:
                found[number].append(message)
            else:
                ended.add(number)
        return found

    yield messages
    consumer.close()


def values(places: Places) -> dict[int, list[bytes]]:
    return {number: [one.value() for one in rows] for number, rows in places.items()}


CODECS: list[tuple[str, dict[str, int]]] = [
    ("none", {}),
    ("snappy", {}),
    ("gzip", {"compression_gzip_level": 1}),
    ("gzip", {"compression_gzip_level": 9}),
    ("lz4", {"compression_lz4_level": 1}),
    ("lz4", {"compression_lz4_level": 12}),
    ("zstd", {"compression_zstd_level": 1}),
    ("zstd", {"compression_zstd_level": 15}),
]
WORDS = [b" ".join(b"%d %d" % (number * 7 % 89, number) for _ in range(3)) for number in range(800)]


def test_every_codec_is_accepted(make: Maker, new_topic: Any, read: Any) -> None:
    sizes: dict[str, list[float]] = {}
    topic = new_topic(len(CODECS))
    for number, (codec, level) in enumerate(CODECS):
        with make(compression_type=codec, linger_ms=100, batch_size=100_000, **level) as producer:
            producer.partitions_for(topic)
            producer.send_many(topic, WORDS, partition=number).result(PATIENCE_S)
            sizes.setdefault(codec, []).append(producer.metrics()["batch_bytes_sent"])
    assert values(read(topic, len(CODECS))) == dict.fromkeys(range(len(CODECS)), WORDS)
    for codec in ("gzip", "lz4", "zstd"):
        quick, small = sizes[codec]
        assert small < quick < sizes["none"][0]


def test_a_record_has_all_its_parts(make: Maker, new_topic: Any, read: Any) -> None:
    topic = new_topic(2)
    with make() as producer:
        sent = producer.send(
            topic, b"v", b"k", partition=1, timestamp=1234, headers=[("h", b"1"), ("n", None)]
        )
        assert sent.result(PATIENCE_S) == (topic, 1, 0, 1234)
        producer.send(topic, None, b"", partition=1, headers={"é": b""}).result(PATIENCE_S)
    one, two = read(topic, 2)[1]
    assert (one.key(), one.value(), one.timestamp()[1]) == (b"k", b"v", 1234)
    assert one.headers() == [("h", b"1"), ("n", None)]
    assert (two.key(), two.value(), two.headers()) == (b"", None, [("é", b"")])


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_closing_loses_nothing(make: Maker, new_topic: Any, read: Any, acks: str) -> None:
    topic = new_topic()
    with make(linger_ms=10_000, acks=acks) as producer:
        for value in numbered(300):
            producer.send(topic, value)
    # With acks=0 the broker writes it a moment after the connection has ended.
    with make() as producer:
        offset = producer.send(topic, b"last").result(PATIENCE_S).offset
    expected = [*numbered(300), b"last"]
    if acks != "0":
        assert offset == 300
        assert values(read(topic))[0] == expected
    else:
        while sorted(values(read(topic))[0]) != sorted(expected):
            pass


PARTITIONERS = [
    "consistent",
    "consistent_random",
    "murmur2",
    "murmur2_random",
    "fnv1a",
    "fnv1a_random",
]


@pytest.mark.parametrize("partitioner", [None, *PARTITIONERS])
def test_keys_go_where_librdkafka_sends_them(
    make: Maker, new_topic: Any, read: Any, bootstrap: str, partitioner: str | None
) -> None:
    topic = new_topic(7)
    keys = [b"key-%d" % number for number in range(60)] + [b"\x00", b"\xff" * 33]
    peer = Peer({"bootstrap.servers": bootstrap, "partitioner": partitioner or "murmur2_random"})
    for key in keys:
        peer.produce(topic, b"theirs", key)
    peer.flush(PATIENCE_S)
    with make(partitioner_class=partitioner) as producer:
        producer.send_many(topic, [b"ours"] * len(keys), keys).result(PATIENCE_S)
        if partitioner is None:
            table = pa.table({"key": keys, "value": [b"table"] * len(keys)})
            producer.send_table(topic, table).result(PATIENCE_S)
    makers = (b"ours", b"theirs") if partitioner else (b"ours", b"theirs", b"table")
    for rows in read(topic, 7).values():
        by_maker = [[one.key() for one in rows if one.value() == maker] for maker in makers]
        assert all(each == by_maker[0] for each in by_maker)


def test_round_robin_and_custom_partitioners(make: Maker, new_topic: Any) -> None:
    topic = new_topic(3)
    with make(partitioner_class="round_robin") as producer:
        sent = [producer.send(topic, b"", b"same") for _ in range(6)]
        assert [one.result(PATIENCE_S).partition for one in sent] == [0, 1, 2, 0, 1, 2]
    with make(partitioner_class=lambda _topic, _key, value, count: value[0] % count) as producer:
        assert producer.send(topic, b"\x05").result(PATIENCE_S).partition == 2


def test_records_without_keys_reach_every_partition(make: Maker, new_topic: Any, read: Any) -> None:
    topic = new_topic(3)
    with make(batch_size=500) as producer:
        producer.send_many(topic, numbered(2_000)).result(PATIENCE_S)
    found = values(read(topic, 3))
    assert all(found.values())
    assert sorted(itertools.chain(*found.values())) == numbered(2_000)


def test_serializers_and_interceptors_are_called(make: Maker, new_topic: Any, read: Any) -> None:
    topic = new_topic()
    heard: list[tuple[int, Exception | None]] = []

    class Stamp:
        def on_send(self, record: Any) -> Any:
            return record._replace(value={**record.value, "seen": True})

        def on_acknowledgement(self, metadata: Any, error: Exception | None) -> None:
            heard.append((metadata.offset, error))

    with make(
        key_serializer="str", value_serializer="json", interceptor_classes=[Stamp()]
    ) as producer:
        producer.send(topic, {"a": 1}, "ключ").result(PATIENCE_S)
    (message,) = read(topic)[0]
    assert message.key() == "ключ".encode()
    assert message.value() == b'{"a":1,"seen":true}'
    assert heard == [(0, None)]


def test_callbacks_and_metrics_cover_every_record(make: Maker, new_topic: Any) -> None:
    topic = new_topic()
    heard: list[int] = []
    with make() as producer:
        for value in numbered(50):
            producer.send(topic, value).add_callback(lambda one: heard.append(one.result().offset))
        producer.flush()
        counted = producer.metrics()
    assert heard == list(range(50))
    assert counted["records_sent"] == 50
    assert counted["records_failed"] == counted["requests_in_flight"] == 0
    assert counted["requests_sent"] >= counted["batches_sent"] / 5 > 0
    assert counted["request_latency_ms_max"] >= counted["request_latency_ms_avg"] > 0
    assert counted["queue_time_ms_avg"] > 0
    assert counted["batch_bytes_sent"] >= counted["record_bytes_sent"] > 300
    assert counted["buffer_available_bytes"] == counted["buffer_total_bytes"]


def test_a_table_keeps_its_columns(make: Maker, new_topic: Any, read: Any) -> None:
    topic = new_topic(2)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array([b"k", None, None], pa.binary()),
            "value": pa.array(["text", None, "more"], pa.string()),
            "timestamp": pa.array([1, 2, 3], pa.int64()),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None, []], headers),
            "partition": pa.array([1, 0, 1], pa.int32()),
        }
    )
    with make() as producer:
        ranges = producer.send_table(topic, table).result(PATIENCE_S)
    assert sorted((one.partition, one.first_offset, one.records) for one in ranges) == [
        (0, 0, 1),
        (1, 0, 2),
    ]
    found = read(topic, 2)
    one, three = found[1]
    assert (one.key(), one.value(), one.headers()) == (b"k", b"text", [("h", b"1")])
    assert (three.key(), three.value(), three.timestamp()[1]) == (None, b"more", 3)
    assert [message.value() for message in found[0]] == [None]


def test_records_that_are_too_large_are_split_or_refused(
    make: Maker, new_topic: Any, read: Any
) -> None:
    topic = new_topic(max_message_bytes="3000")
    many = [value * 20 for value in numbered(200)]
    with make(batch_size=50_000, linger_ms=100) as producer:
        producer.partitions_for(topic)
        producer.send_many(topic, many).result(PATIENCE_S)
        producer.send_table(topic, pa.table({"value": many})).result(PATIENCE_S)
        assert producer.metrics()["batches_split"] > 1
        with pytest.raises(KafkaError) as caught:
            producer.send(topic, bytes(5_000)).result(PATIENCE_S)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        producer.send(topic, b"last").result(PATIENCE_S)
    assert values(read(topic))[0] == [*many, *many, b"last"]


def test_transactions_are_read_as_a_whole_or_not_at_all(
    make: Maker, new_topic: Any, read: Any, bootstrap: str
) -> None:
    topic, small = new_topic(2), new_topic(max_message_bytes="1000")
    name = f"tx-{os.getpid()}-{next(_numbers)}"
    place = TopicPartition(topic, 0)
    with make(transactional_id=name) as producer:
        with producer.transaction():
            producer.send(topic, b"one", partition=0)
            producer.send_table(topic, pa.table({"value": [b"two"]}), partition=1)
            producer.send_offsets({place: 7}, name)
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0).result(PATIENCE_S)
        producer.send_offsets({place: 9}, name)
        producer.abort_transaction()
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"%d" % (1 // 0), partition=0)
        with pytest.raises(MustAbortError, match="abort"), producer.transaction():
            producer.send(small, bytes(5_000))
        with producer.transaction():
            producer.send_many(topic, [b"three"], partition=1)
    assert values(read(topic, 2)) == {0: [b"one"], 1: [b"two", b"three"]}
    with moldau.Admin(bootstrap) as admin:
        offsets = admin.list_group_offsets([name])[name]
    assert not isinstance(offsets, KafkaError)
    assert offsets[place].offset == 7


def test_a_second_producer_of_a_transactional_id_stops_the_first(
    make: Maker, new_topic: Any, read: Any
) -> None:
    topic = new_topic()
    name = f"tx-{os.getpid()}-{next(_numbers)}"
    with make(transactional_id=name) as first, make(transactional_id=name) as second:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"first").result(PATIENCE_S)
        second.init_transactions()
        with pytest.raises(MustStopError, match="close this producer"):
            first.commit_transaction()
        with second.transaction():
            second.send(topic, b"second")
    assert values(read(topic))[0] == [b"second"]
