"""Helpers for tests of exactly-once: a source topic, a job in a process of its own or not, and
checks of the result.
"""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientPartition
from spark.copy_job import ROWS, Job, command, run

from moldau import Admin, Producer
from moldau.admin import IsolationLevel, ListOffsetsTimestamp, NewTopic
from moldau.pipelines.run.worker_python import worker_python
from moldau.types import TopicPartition

PARTITIONS = 4
TESTS = Path(__file__).parents[1]
RUN_TIMEOUT_S = 600
KILLED = -9
POLL_S = 0.5
RUNS_MAX = 4
# Spark waits ten seconds for a Python process, even on a busy machine.
SLOW_PYTHON_START = "Python worker failed to connect back"


def new_job(bootstrap: str, folder: Path, **options: Any) -> Job:
    """A job with 30 000 rows to copy in five batches."""
    name = f"copy-{os.getpid()}-{folder.name}"
    job = Job(bootstrap, f"{name}-from", f"{name}-to", name, str(folder), **options)
    with Admin(bootstrap) as admin:
        topics = [NewTopic(name=one, partitions=PARTITIONS) for one in (job.source, job.target)]
        for made in admin.create_topics(topics).values():
            assert not isinstance(made, Exception), made
    numbers = [b"%d" % number for number in range(ROWS)]
    places = pa.array([number % PARTITIONS for number in range(ROWS)], pa.int32())
    with Producer(bootstrap) as producer:
        table = pa.table({"key": numbers, "value": numbers, "partition": places})
        producer.send_table(job.source, table)
    return job


def environment() -> dict[str, str]:
    """The environment of Spark's Python processes, which import the faults."""
    return {
        "PYTHONPATH": str(TESTS),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": worker_python(),
    }


def start_process(job: Job) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(job),
        env=os.environ | environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_process(job: Job) -> tuple[int, str]:
    """Returns its status and output. Starts it again if Spark gave up on a slow Python, as a
    supervisor would.
    """
    status, output = _run_once(job)
    for _ in range(RUNS_MAX - 1):
        if SLOW_PYTHON_START not in output:
            break
        status, output = _run_once(job)
    return status, output


def _run_once(job: Job) -> tuple[int, str]:
    process = start_process(job)
    _, output = process.communicate(timeout=RUN_TIMEOUT_S)
    return process.returncode, output


def finish(session: Any, job: Job) -> None:
    """A run without a fault."""
    run(session, replace(job, fault=""))


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """The values as another client library reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"look-{topic}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    found: list[bytes] = []
    ended: set[int] = set()
    try:
        numbers = range(PARTITIONS)
        consumer.assign([ClientPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
        while len(ended) < PARTITIONS:
            for message in consumer.consume(10_000, timeout=POLL_S):
                error = message.error()
                if error is None:
                    found.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
    finally:
        consumer.close()
    return found


def _offsets(found: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
    return {one: row.offset for one, row in found.items() if not isinstance(row, Exception)}


def wait_until_nothing_is_open(job: Job) -> None:
    """The end of a transaction is acknowledged before its markers are written."""
    places = [TopicPartition(job.target, number) for number in range(PARTITIONS)]
    latest = dict.fromkeys(places, int(ListOffsetsTimestamp.LATEST))
    deadline = time.monotonic() + RUN_TIMEOUT_S
    with Admin(job.bootstrap) as admin:
        while True:
            stable = _offsets(admin.list_offsets(latest, isolation=IsolationLevel.READ_COMMITTED))
            everything = _offsets(admin.list_offsets(latest))
            open_ids = [one for one in admin.list_transactions() if one.state == "Ongoing"]
            if not open_ids and stable == everything and len(stable) == PARTITIONS:
                return
            assert time.monotonic() < deadline, (open_ids, stable, everything)


def check_copied(job: Job) -> None:
    """30 000 committed, 30 000 distinct, no transaction open."""
    wanted = {b"%d" % number for number in range(ROWS)}
    if job.is_stateful:
        wanted = {value + b":1" for value in wanted}
    wait_until_nothing_is_open(job)
    found = Counter(committed_values(job.bootstrap, job.target))
    twice = [value for value, times in found.items() if times > 1]
    assert (sum(found.values()), twice[:5], found.keys() == wanted) == (ROWS, [], True)
