"""Source, sink and exactly-once in Spark, against Apache Kafka: the same results as
against Moldau.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker
from spark.copy_job import FAULTY_BATCH
from spark.copying import environment
from spark.copying_cases import *  # noqa: F403 - these are tests too
from spark.response_dropper import ResponseDropper
from support.spark_sessions import local_session

from moldau import Producer

pytestmark = pytest.mark.interop

PATIENCE_S = 300


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    os.environ |= {"PYSPARK_PYTHON": sys.executable} | environment()
    found = local_session(tmp_path_factory.mktemp("spark"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def node(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(apache, tmp_path_factory.mktemp("apache")) as running:
        running.format()
        running.start()
        yield running


@pytest.fixture
def bootstrap(node: LiveBroker) -> str:
    return node.address


@pytest.fixture
def dropping_bootstrap(
    apache: ApacheOracle, tmp_path: Path
) -> Iterator[tuple[str, ResponseDropper]]:
    folder = tmp_path / "apache"
    folder.mkdir()
    with ResponseDropper(FAULTY_BATCH) as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with LiveBroker(apache, folder, settings) as running:
            running.format()
            proxy.serve(int(running.address.rpartition(":")[2]))
            running.start()
            yield proxy.address, proxy


def test_batches_and_streams(session: Any, node: LiveBroker, tmp_path: Path) -> None:
    node.create_topic("numbers", 2)
    node.create_topic("copies", 2)
    with Producer(node.address) as producer:
        for number in range(100):
            headers = [("h", b"x")]
            producer.send(
                "numbers", b"%d" % number, partition=number % 2, timestamp=1000 + number,
                headers=headers,
            )  # fmt: skip
    known = {"kafka.bootstrap.servers": node.address}
    reading = session.read.format("moldau").options(**known, subscribe="numbers")
    rows = reading.option("includeHeaders", "true").load()
    assert rows.selectExpr("cast(value as string)").distinct().count() == 100
    assert rows.selectExpr("headers[0].key k").distinct().collect()[0]["k"] == "h"
    assert reading.option("startingTimestamp", "1090").load().count() == 10
    limited = {
        "startingOffsets": json.dumps({"numbers": {"0": 5, "1": -2}}),
        "endingOffsets": json.dumps({"numbers": {"0": 9, "1": 1}}),
    }
    plain = session.read.format("moldau").options(**known, subscribe="numbers", **limited)
    assert plain.load().count() == 5

    query = (
        session.readStream.format("moldau")
        .options(**known, subscribePattern="numb.*", startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", "30")
        .load()
        .writeStream.format("moldau")
        .options(**known, topic="copies", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    copies = session.read.format("moldau").options(**known, subscribe="copies").load()
    assert copies.select("value").distinct().count() == copies.count() == 100
