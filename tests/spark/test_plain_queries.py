"""Queries of plain PySpark that are killed, whose broker is killed, or that are used wrongly."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.copying import KILLED, RUN_TIMEOUT_S, environment
from spark.plain_job import PlainJob, command, start
from spark.rows import fresh_topic, read_batch, send_numbers, values

from moldau.testing import ProcessBroker, ThreadBroker, broker

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def own_broker() -> Iterator[ProcessBroker]:
    with broker(process=True) as node:
        assert isinstance(node, ProcessBroker)
        yield node


def read_numbers(node: Any, topic: str) -> list[int]:
    return sorted(map(int, values(read_batch(node, subscribe=topic))))


def test_a_query_killed_in_its_first_batch_resumes_at_its_start(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    """It started at latest; records that arrived while it was down are not lost."""
    source, target = fresh_topic(node), fresh_topic(node)
    send_numbers(node, source, 10)
    job = PlainJob(node.bootstrap, source, target, str(tmp_path), dies_in_batch=0)
    killed = subprocess.run(
        command(job),
        env=os.environ | environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert killed.returncode == KILLED, killed.stderr[-3000:]
    assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
    send_numbers(node, source, 20, first=10)
    query = start(session, PlainJob(node.bootstrap, source, target, str(tmp_path)), ends=True)
    assert query.awaitTermination(RUN_TIMEOUT_S)
    assert read_numbers(node, target) == list(range(10, 30))


def test_a_running_query_bears_a_killed_broker(
    session: Any, own_broker: ProcessBroker, tmp_path: Path
) -> None:
    """In the middle of its work; its source and its target are on this broker."""
    source, target = fresh_topic(own_broker, 2), fresh_topic(own_broker, 2)
    send_numbers(own_broker, source, 600)
    job = PlainJob(own_broker.bootstrap, source, target, str(tmp_path), starting="earliest")
    query = start(session, job, ends=False)
    try:
        while not read_batch(own_broker, subscribe=target):
            assert query.isActive, query.exception()
        own_broker.kill()
        own_broker.start()
        send_numbers(own_broker, source, 100, first=600)
        query.processAllAvailable()
    finally:
        query.stop()
    # At least once: rows in flight may be written twice.
    assert set(read_numbers(own_broker, target)) == set(range(700))


def test_the_error_explains_that_a_table_loses_its_options(
    session: Any, node: ThreadBroker
) -> None:
    from pyspark.errors import PySparkException

    given = f"OPTIONS (`kafka.bootstrap.servers` '{node.bootstrap}', subscribe 'any')"
    with pytest.raises(PySparkException, match="write CREATE TEMPORARY VIEW"):
        session.sql(f"CREATE TABLE lost USING moldau {given}")


def test_an_unreachable_broker_is_reported_through_spark(session: Any) -> None:
    from pyspark.errors import PySparkException

    known = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    patience = {"kafka.default.api.timeout.ms": "2000"}
    rows = session.read.format("moldau").options(**known, **patience, subscribe="any").load()
    with pytest.raises(PySparkException, match=r"cannot reach 127\.0\.0\.1:1"):
        rows.count()
    made = session.range(1).selectExpr("cast(id as string) value")
    patience = {"kafka.max.block.ms": "2000"}
    writing = made.write.format("moldau").options(**known, **patience, topic="any").mode("append")
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1"):
        writing.save()
