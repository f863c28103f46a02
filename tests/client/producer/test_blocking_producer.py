"""The blocking producer against a real node: records arrive, and misuse is an error."""

import os
import sys
import threading
from typing import Any
from uuid import UUID

import pytest
from client.clusters import fresh_topic
from client.produced import PATIENCE_S, numbered, producer_of, stored, values_of

import moldau
from moldau.core.producer.batching import murmur2
from moldau.errors import (
    ClientError,
    ClientTimeoutError,
    ClosedError,
    ConfigError,
    ErrorCode,
    KafkaError,
    MoldauError,
    UnknownTopicError,
)
from moldau.testing import ThreadBroker


def test_a_delivery_has_the_offset_of_its_record(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 3)
    with producer_of(node) as producer:
        first = producer.send(topic, b"a", b"key", partition=2, timestamp=1234)
        second = producer.send(topic, b"b", partition=2, headers=[("h", b"1"), ("n", None)])
        assert first.result(PATIENCE_S) == (topic, 2, 0, 1234)
        assert second.result(PATIENCE_S).offset == 1
        assert first.done()
        assert second.exception() is None
    one, two = stored(node, topic)[2]
    assert (one.key, one.value, one.timestamp) == (b"key", b"a", 1234)
    assert two.headers == (("h", b"1"), ("n", None))


def test_closing_sends_all_unsent_records(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    values = numbered(5_000)
    producer = producer_of(node, linger_ms=10_000)
    for value in values:
        producer.send(topic, value)
    producer.close()
    assert values_of(node, topic) == values


def test_flush_waits_for_what_lingers(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, linger_ms=60_000, request_timeout_ms=1_000) as producer:
        deliveries = [producer.send(topic, value) for value in numbered(10)]
        assert not deliveries[0].done()
        producer.flush(PATIENCE_S)
        assert [delivery.result(0).offset for delivery in deliveries] == list(range(10))


def test_many_records_in_one_call_keep_their_order_and_are_reported_in_ranges(
    node: ThreadBroker,
) -> None:
    topic = fresh_topic(node)
    with producer_of(node) as producer:
        deliveries = producer.send_many(topic, numbered(30_000))
        assert len(deliveries) == 30_000
        ranges = deliveries.result(PATIENCE_S)
        assert sum(one.records for one in ranges) == 30_000
        assert next(iter(deliveries)).result().offset == 0
        assert deliveries.done()
    assert values_of(node, topic) == numbered(30_000)


def test_a_table_goes_to_the_partitions_of_its_keys(node: ThreadBroker) -> None:
    import pyarrow as pa

    topic = fresh_topic(node, 3)
    count = 5_000
    keys = [None if number % 10 == 0 else b"%d" % (number % 7) for number in range(count)]
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(numbered(count), pa.binary()),
            "timestamp": pa.array(range(count), pa.int64()),
        }
    )
    with producer_of(node) as producer:
        ranges = producer.send_table(topic, table.slice(3)).result(PATIENCE_S)
    assert sum(one.records for one in ranges) == count - 3
    found = stored(node, topic)
    everything = sorted(
        (record.value, record.key, record.timestamp) for rows in found.values() for record in rows
    )
    assert (
        everything
        == [
            (value, key, number)
            for number, (value, key) in enumerate(zip(numbered(count), keys, strict=True))
        ][3:]
    )
    for partition, rows in found.items():
        keyed = [record for record in rows if record.key is not None]
        assert {(murmur2(record.key or b"") & 0x7FFFFFFF) % 3 for record in keyed} <= {partition}
        assert keyed == sorted(keyed, key=lambda record: record.timestamp)


def test_callbacks_run_once_for_every_record_and_their_errors_are_harmless(
    node: ThreadBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = fresh_topic(node)
    heard: list[int] = []

    def listen(delivery: Any) -> None:
        heard.append(delivery.result().offset)
        if len(heard) == 3:
            raise RuntimeError("the user's own mistake")

    with producer_of(node) as producer:
        for value in numbered(100):
            producer.send(topic, value).add_callback(listen)
        producer.flush(PATIENCE_S)
        last = producer.send(topic, b"")
        last.result(PATIENCE_S)
        last.add_callback(listen)
    assert heard == list(range(101))
    assert "callback failed" in caplog.text


def test_a_callback_may_send_but_not_wait(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    problems: list[Exception] = []
    answered = threading.Event()
    with producer_of(node) as producer:

        def follow(_: Any) -> None:
            try:
                producer.send(topic, b"second").result(1)
            except ClientError as error:
                problems.append(error)
            answered.set()

        producer.send(topic, b"first").add_callback(follow)
        assert answered.wait(PATIENCE_S)
    assert "must not wait" in str(problems[0])
    assert values_of(node, topic) == [b"first", b"second"]


def test_serializers_turn_values_into_bytes(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, key_serializer="str", value_serializer="json") as producer:
        producer.send(topic, {"a": [1, None]}, "ключ").result(PATIENCE_S)
        producer.send(topic, None, None).result(PATIENCE_S)
        with pytest.raises(ClientError, match="cannot be JSON"):
            producer.send(topic, {1, 2})
        with pytest.raises(
            ClientError, match="the key must be str, not bytes; set key_serializer='bytes'"
        ):
            producer.send(topic, 1, b"bytes")
    with producer_of(node, value_serializer=lambda value: bytes([value])) as producer:
        producer.send(topic, 7).result(PATIENCE_S)
    keys_and_values = [(record.key, record.value) for record in stored(node, topic)[0]]
    assert keys_and_values == [
        ("ключ".encode(), b'{"a":[1,null]}'),
        (None, None),
        (None, b"\x07"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "content"),
    [
        ("IntegerSerializer", -2, b"\xff\xff\xff\xfe"),
        ("org.apache.kafka.common.serialization.LongSerializer", 1, bytes(7) + b"\x01"),
        ("DoubleSerializer", 1.0, b"\x3f\xf0" + bytes(6)),
        ("UUIDSerializer", UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        ("org.apache.kafka.common.serialization.StringSerializer", "x", b"x"),
        ("ByteArraySerializer", b"x", b"x"),
    ],
)
def test_serializers_have_kafkas_names(
    node: ThreadBroker, name: str, value: object, content: bytes
) -> None:
    topic = fresh_topic(node)
    with producer_of(node, value_serializer=name) as producer:
        producer.send(topic, value).result(PATIENCE_S)
        with pytest.raises(ClientError):
            producer.send(topic, object())
    assert values_of(node, topic) == [content]


def test_threads_share_a_producer(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, batch_size=500) as producer:

        def work(name: int) -> None:
            for number in range(2_000):
                producer.send(topic, b"%d" % number, b"%d" % name)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_thread: dict[bytes | None, list[bytes | None]] = {}
    for record in stored(node, topic)[0]:
        by_thread.setdefault(record.key, []).append(record.value)
    expected = [b"%d" % number for number in range(2_000)]
    assert by_thread == {b"%d" % name: expected for name in range(4)}


def test_threads_that_choose_partitions_are_not_disturbed(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 16)
    failures: list[BaseException] = []
    with producer_of(node, batch_size=100, linger_ms=0) as producer:

        def work(name: int) -> None:
            try:
                for value in numbered(2_000, 2_000 * name):
                    producer.send(topic, value)
                    producer.metrics()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                failures.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    found = [record.value or b"" for rows in stored(node, topic).values() for record in rows]
    assert sorted(found) == numbered(8_000)


def test_misuse_is_an_error_of_one_line(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    producer = producer_of(node, max_block_ms=300)
    wrong: list[tuple[Any, str]] = [
        (
            lambda: producer.send(topic, "text"),
            "the value must be bytes, not str; .*value_serializer='str'",
        ),
        (
            lambda: producer.send(topic, 1),
            "the value must be bytes, not int; .*value_serializer='json'",
        ),
        (lambda: producer.send(topic, {}), "not dict; .*value_serializer='json'"),
        (lambda: producer.send(topic, {1}), "not set; encode it, or choose a value_serializer"),
        (lambda: producer.send(topic, b"", key="a"), "the key .* not str; .*key_serializer='str'"),
        (lambda: producer.send(topic, b"", key={}), "the key .* not dict; .*key_serializer='json'"),
        (lambda: producer.send(topic, b"", headers={"a": 1}), "header 'a' must be bytes"),  # type: ignore[arg-type]
        (lambda: producer.send("", b""), "expected a topic name"),
        (lambda: producer.send(None, b""), "expected a topic name"),  # type: ignore[arg-type]
        (lambda: producer.send(topic, b"", partition=-1), "partition=-1"),
        (lambda: producer.send(topic, b"", timestamp="now"), "timestamp='now'"),  # type: ignore[arg-type]
        (lambda: producer.send(topic, b"", headers=[b"x"]), "headers must be pairs"),  # type: ignore[list-item]
        (lambda: producer.send(topic, b"", partition=7), "no partition 7"),
        (producer.begin_transaction, "transactional.id"),
    ]
    for action, text in wrong:
        with pytest.raises(ClientError, match=text):
            action()
    many: list[tuple[Any, Any, str]] = [
        ([b""], [b"", b""], "2 keys for 1 values"),
        ([b""], ["a"], "the key .* not str; .*key_serializer='str'"),
        ([{}], None, "the value .* not dict; .*value_serializer='json'"),
        (b"abc", None, "values must be a list .*not bytes"),
        (5, None, "values must be a list .*not int"),
        ([b""], "a", "keys must be a list .*not str"),
    ]
    for values, keys, text in many:
        with pytest.raises(ClientError, match=text):
            producer.send_many(topic, values, keys)
    producer.close()
    producer.close()
    with pytest.raises(ClosedError, match="closed"):
        producer.send(topic, b"")
    with pytest.raises(ClosedError):
        producer.flush()
    assert values_of(node, topic) == []


def test_a_table_that_cannot_be_sent_is_an_error_of_one_line(
    node: ThreadBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa

    topic = fresh_topic(node, 2)
    tables: list[tuple[Any, str]] = [
        ([b"a"], "a list is not a table; give a pyarrow table"),
        ({"value": [b"a"]}, "a dict is not a table; .*pyarrow.table"),
        (pa.table({"key": [b"a"]}), "no column named value"),
        (pa.table({"value": [1.5]}), "column value is double"),
        (pa.table({"value": [b"a"], "partition": [2]}), "no partition 2"),
        (pa.table({"value": [b"a"], "partition": [-1]}), "partitions count from 0"),
        (pa.table({"value": [b"a"], "partition": [b"x"]}), "column partition is binary"),
        (pa.table({"value": [b"a"], "timestamp": ["now"]}), "column timestamp is string"),
    ]
    with producer_of(node) as producer:
        for table, text in tables:
            with pytest.raises(MoldauError, match=text):
                producer.send_table(topic, table)
        with pytest.raises(ClientError, match="no partition 9"):
            producer.send_table(topic, pa.table({"value": [b"a"]}), partition=9)
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "pyarrow", None)
            with pytest.raises(MoldauError, match=r"pip install 'moldau\[arrow\]'"):
                producer.send_table(topic, pa.table({"value": [b"a"]}))
    with (
        producer_of(node, partitioner_class="consistent") as producer,
        pytest.raises(ClientError, match="column partition"),
    ):
        producer.send_table(topic, pa.table({"value": [b"a"]}))
    assert stored(node, topic) == {0: [], 1: []}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lingerms": 5}, "linger_ms"),
        ({"config": {"linger.mss": 5}}, "linger.ms"),
        ({"config": {"linger.ms": 5}, "linger_ms": 5}, "twice"),
        ({"compression_type": "brotli"}, "compression.type"),
        ({"partitioner_class": "consistant"}, "did you mean 'consistent'"),
        ({"value_serializer": "jsn"}, "json"),
        ({"value_serializer": "avro"}, "moldau.schemas"),
        ({"enable_idempotence": True, "acks": "1"}, "acks=all"),
        ({"transactional_id": "t", "retries": 0}, "retries"),
        ({"delivery_timeout_ms": 10}, "delivery.timeout.ms"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        moldau.Producer("127.0.0.1:1", **settings)


def test_a_missing_topic_is_waited_for_and_named_in_the_error() -> None:
    from moldau.testing import broker

    with (
        broker({"auto.create.topics.enable": "false"}) as strict,
        producer_of(strict, max_block_ms=300) as producer,
        pytest.raises(UnknownTopicError, match="'nowhere'"),
    ):
        producer.send("nowhere", b"")


def test_an_unreachable_cluster_is_an_error_after_max_block_ms() -> None:
    with (
        moldau.Producer("127.0.0.1:1", max_block_ms=300) as producer,
        pytest.raises(ClientTimeoutError, match="nothing listens there"),
    ):
        producer.send("topic", b"")


def test_a_record_that_is_too_large_is_refused_at_once(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, max_request_size=10_000) as producer:
        with pytest.raises(KafkaError, match=r"max\.request\.size") as caught:
            producer.send(topic, bytes(20_000))
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        producer.send(topic, bytes(5_000)).result(PATIENCE_S)


def test_new_partitions_are_found(node: ThreadBroker) -> None:
    import asyncio

    from client.clusters import cluster_of

    from moldau.client.admin.topics import add_partitions

    topic = fresh_topic(node, 1)
    with producer_of(node) as producer:
        producer.send(topic, b"").result(PATIENCE_S)

        async def grow() -> None:
            async with cluster_of(node) as cluster:
                await add_partitions(cluster, topic, 3)

        asyncio.run(grow())
        assert producer.send(topic, b"", partition=2).result(PATIENCE_S).partition == 2
        assert producer.partitions_for(topic) == [0, 1, 2]


def test_a_missing_partition_is_refused_at_once(node: ThreadBroker) -> None:
    """And not only after max.block.ms, which is 24 days here."""
    import pyarrow as pa

    topic = fresh_topic(node, 3)
    with producer_of(node, max_block_ms=2**31 - 1) as producer:
        for _ in ("a topic that is new here", "a known one"):
            with pytest.raises(
                ClientError, match=r"no partition 17; it has 3 partitions \(0 to 2\)"
            ):
                producer.send(topic, b"", partition=17)
        with pytest.raises(ClientError, match="no partition 17; it has 3"):
            producer.send_table(topic, pa.table({"value": ["a"]}), partition=17)
        with pytest.raises(ClientError, match="no partition 17; it has 3"):
            producer.send_many(topic, [b"a"], partition=17)
    assert values_of(node, topic) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_cannot_use_its_parents_client(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node) as producer:
        producer.send(topic, b"parent").result(PATIENCE_S)
        child = os.fork()
        if child == 0:
            try:
                producer.send(topic, b"child")
            except ClosedError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        producer.send(topic, b"parent again").result(PATIENCE_S)
    assert values_of(node, topic) == [b"parent", b"parent again"]
