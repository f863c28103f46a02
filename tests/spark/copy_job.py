"""A query that copies a topic exactly once, with a fault in its third batch on request. It runs in
the test's process, or in one of its own that may be killed.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from support import waiting, worker_killing

from moldau.spark.sink.driver_transaction import TransactionTicket
from moldau.spark.sink.exactly_once import ExactlyOnceSink
from moldau.spark.sink.task_writer import TransactionWriter

ROWS = 30_000
ROWS_PER_BATCH = 6_000
FAULTY_BATCH = 2
# More than any number of tasks and attempts.
ALWAYS = 100
WAIT_S = 300.0
CONNECT = "connect"


@dataclass(frozen=True)
class Job:
    bootstrap: str
    source: str
    target: str
    name: str
    folder: str
    fault: str = ""
    fails_times: int = 1
    is_stateful: bool = False
    starting: str = "earliest"
    master: str = "local[2]"
    victims: tuple[int, ...] = ()
    """Processes that a fault kills."""

    @property
    def checkpoint(self) -> str:
        return f"{self.folder}/checkpoint"

    def happens(self, fault: str) -> bool:
        """Whether a fault is due; each happens a limited number of times."""
        if fault != self.fault:
            return False
        for number in range(self.fails_times):
            try:
                (Path(self.folder) / f"{fault}.{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return True
        return False

    def kill(self) -> None:
        for victim in self.victims:
            os.kill(victim, signal.SIGKILL)

    def wait_for_go(self) -> None:
        """Reports by a file that the task has started, and waits for another file to continue."""
        (Path(self.folder) / "reached").touch()
        waiting.wait_for((Path(self.folder) / "go").exists, "the file `go`", WAIT_S)


class FaultyTask(TransactionWriter):
    def __init__(self, ticket: TransactionTicket, job: Job) -> None:
        super().__init__(ticket)
        self._job = job

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        if self._job.happens("zombie task"):
            self._job.wait_for_go()
        found = list(super().__call__(batches))
        if any(batch.num_rows for batch in found):
            if self._job.happens("task fails"):
                raise OSError("a task fails after it has written")
            if self._job.happens("killed while tasks write"):
                self._job.kill()
            if self._job.happens("worker killed"):
                worker_killing.kill_own_worker()
        yield from found


class FaultySink(ExactlyOnceSink):
    def __init__(self, job: Job) -> None:
        options = {"kafka.bootstrap.servers": job.bootstrap, "topic": job.target}
        super().__init__(job.name, job.checkpoint, options)
        self._job = job
        self._is_faulty = False

    def __call__(self, rows: Any, batch_id: int) -> None:
        self._is_faulty = batch_id == FAULTY_BATCH
        super().__call__(rows, batch_id)

    def _task(self, ticket: TransactionTicket) -> TransactionWriter:
        return FaultyTask(ticket, self._job) if self._is_faulty else super()._task(ticket)

    def _commit(self, *arguments: Any) -> None:
        if self._is_faulty and self._job.happens("killed before the end"):
            self._job.kill()
        if self._is_faulty and self._job.happens("zombie driver"):
            self._job.wait_for_go()
        super()._commit(*arguments)
        if self._is_faulty and self._job.happens("killed after the end"):
            self._job.kill()


def run(session: Any, job: Job) -> None:
    """Runs until everything is copied. Raises the errors of the query."""
    rows = (
        session.readStream.format("moldau")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("kafka.group.id", job.name)
        .option("subscribe", job.source)
        .option("startingOffsets", job.starting)
        .option("maxOffsetsPerTrigger", str(ROWS_PER_BATCH))
        .load()
        .selectExpr("cast(key as string) key", "cast(value as string) value")
    )
    mode = "append"
    if job.is_stateful:
        # Each key comes once, so each group is written once.
        rows = rows.groupBy("key").count().selectExpr("key", "concat(key, ':', count) value")
        mode = "update"
    sink = FaultySink(job)
    query = (
        rows.writeStream.foreachBatch(sink)
        .option("checkpointLocation", job.checkpoint)
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        sink.close()


def main() -> None:
    from pyspark import cloudpickle
    from support.spark_cluster import SMALL
    from support.spark_sessions import local_session

    job = Job(**json.loads(sys.argv[1]))
    if job.master == CONNECT:
        run_connected(job)
        return
    session = local_session(Path(job.folder) / "session", job.master, **SMALL)
    # Tasks elsewhere cannot import the tests' modules.
    for module in (waiting, worker_killing):
        cloudpickle.register_pickle_by_value(module)
    jvm = int(session._jvm.java.lang.ProcessHandle.current().pid())
    # The JVM ends with its driver.
    victims = tuple(job.victims) or (jvm, os.getpid())
    try:
        run(session, replace(job, victims=victims))
    finally:
        session.stop()


def run_connected(job: Job) -> None:
    """Runs through a server of Spark Connect, which runs the sink in a process of its own."""
    from pyspark.sql import SparkSession

    from moldau.spark import ensure_java

    ensure_java()
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        run(session, job)
        if not job.fault:
            copy_plainly(session, job)
    finally:
        session.stop()


def copy_plainly(session: Any, job: Job) -> None:
    """Copies the target once more: with a batch, and with a stream without the sink."""
    known = {"kafka.bootstrap.servers": job.bootstrap}
    rows = session.read.format("moldau").options(**known, subscribe=job.target).load()
    writing = rows.select("key", "value").write.format("moldau").mode("append")
    writing.options(**known, topic=f"{job.target}-batch").save()
    stream = session.readStream.format("moldau").options(
        **known, subscribe=job.target, startingOffsets="earliest"
    )
    query = (
        stream.load()
        .select("key", "value")
        .writeStream.format("moldau")
        .options(**known, topic=f"{job.target}-stream")
        .option("checkpointLocation", f"{job.folder}/plain")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def command(job: Job) -> list[str]:
    return [sys.executable, __file__, json.dumps(asdict(job))]


if __name__ == "__main__":
    main()
