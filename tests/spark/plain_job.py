"""A query of plain PySpark that copies new records to a topic, at least once. It runs in the test's
process, or in one of its own that kills itself in the middle of a batch.
"""

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PlainJob:
    bootstrap: str
    source: str
    target: str
    folder: str
    starting: str = "latest"
    dies_in_batch: int | None = None


def start(session: Any, job: PlainJob, *, ends: bool) -> Any:
    """`ends`: the query stops after the existing records."""
    jvm = int(session._jvm.java.lang.ProcessHandle.current().pid())

    def write(rows: Any, batch_id: int) -> None:
        (
            rows.write.format("moldau")
            .option("kafka.bootstrap.servers", job.bootstrap)
            .option("topic", job.target)
            .mode("append")
            .save()
        )
        if batch_id == job.dies_in_batch:
            for victim in (jvm, os.getpid()):
                os.kill(victim, signal.SIGKILL)

    writer = (
        session.readStream.format("moldau")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.source)
        .option("startingOffsets", job.starting)
        .option("maxOffsetsPerTrigger", "50")
        .load()
        .select("key", "value")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{job.folder}/checkpoint")
    )
    return (writer.trigger(availableNow=True) if ends else writer).start()


def main() -> None:
    from support.spark_sessions import local_session

    job = PlainJob(**json.loads(sys.argv[1]))
    session = local_session(Path(job.folder) / "session")
    start(session, job, ends=False).awaitTermination()


def command(job: PlainJob) -> list[str]:
    return [sys.executable, __file__, json.dumps(asdict(job))]


if __name__ == "__main__":
    main()
