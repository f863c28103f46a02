"""Kafka's own producer and consumer together with ours: each reads the other's records, in every
codec, and keys go to the same partitions.
"""

import pytest
from interop.peers.java_tools import CONSOLE_PRODUCER, TOPICS, JavaTools
from interop.peers.test_java_console_tools import CODECS, consume, formatter, reader

from moldau import Consumer, Producer

pytestmark = pytest.mark.interop

PATIENCE_S = 60
COUNT = 200
PARTITIONS = 5


@pytest.mark.parametrize("codec", CODECS)
def test_each_reads_the_other_in_every_codec(tools: JavaTools, name: str, codec: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    ours = [f"ours {number} " + "x" * 200 for number in range(COUNT)]
    theirs = [f"theirs {number} " + "y" * 200 for number in range(COUNT)]
    settings = {"compression.type": codec, "linger.ms": 50}
    with Producer(tools.server.address, config=settings) as producer:
        producer.send_many(name, [value.encode() for value in ours]).result(PATIENCE_S)
    lines = "".join(f"{value}\n" for value in theirs).encode()
    tools.run(CONSOLE_PRODUCER, "--topic", name, "--compression-codec", codec, stdin=lines)
    assert consume(tools, name, 2 * COUNT, "--from-beginning") == ours + theirs
    with Consumer(
        tools.server.address, auto_offset_reset="earliest", value_deserializer="str"
    ) as consumer:
        consumer.assign([(name, 0)])
        found: list[str] = []
        while len(found) < 2 * COUNT:
            found += [record.value for record in consumer.poll(1)]
    assert found == ours + theirs


def test_keys_go_to_the_same_partitions(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", str(PARTITIONS))
    keys = [f"key-{number}" * (number % 4 + 1) for number in range(COUNT)]
    options = reader("parse.key=true", "key.separator=:")
    lines = "".join(f"{key}:java\n" for key in keys).encode()
    tools.run(CONSOLE_PRODUCER, "--topic", name, *options, stdin=lines)
    with Producer(tools.server.address, key_serializer="str") as producer:
        for key in keys:
            producer.send(name, b"moldau", key)
    shown = formatter("print.partition=true", "print.key=true")
    rows = consume(tools, name, 2 * COUNT, "--from-beginning", *shown)
    places: dict[str, dict[str, str]] = {"java": {}, "moldau": {}}
    for row in rows:
        partition, key, who = row.split("\t")
        places[who][key] = partition
    assert places["java"] == places["moldau"]
    assert len(set(places["java"].values())) == PARTITIONS
