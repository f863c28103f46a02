"""Runs one of the two connectors in a Spark of its own: prints its measurements as JSON, and a line
for each part that is done. The parent process measures the processor time.
"""

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

STREAM_BATCHES = 10
# The first ones start processes, and Java compiles frequently run code for each query.
WARM_BATCHES = 4
LOOK_S = 0.1
RATE = "M rows/s"
COST = "processor s per M rows"
COLUMNS = {
    "read 7 columns": None,
    "read key and value": "key,value",
    "read value": "value",
}


class Speed(NamedTuple):
    rate: float
    """Millions of rows per second."""
    cost_s: float
    """Processor time of all of Spark's processes for a million rows, which is comparable even if
    other programs use the machine too.
    """


def best(tries: list[Speed]) -> dict[str, float]:
    return {
        RATE: float(f"{max(one.rate for one in tries):.3g}"),
        COST: float(f"{min(one.cost_s for one in tries):.3g}"),
    }


def with_rows(query: StreamingQuery) -> list[Any]:
    """Spark's progress reports of the micro-batches that had rows."""
    return [one for one in query.recentProgress if one["numInputRows"]]


def processor_s() -> float:
    sys.stdout.write("PROCESSOR\n")
    sys.stdout.flush()
    return float(sys.stdin.readline())


class Work:
    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders = orders
        builder = SparkSession.builder.master("local[2]").appName("benchmark")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",
            # A busy machine takes long to start Python.
            "spark.python.authenticate.socketTimeout": "120s",
            # As `moldau pipeline run` sets it.
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing."
                "FileSystemBasedCheckpointFileManager"
            ),
        }
        if orders["jars"]:
            settings["spark.jars"] = orders["jars"]
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.format = orders["format"]
        self.rows = int(orders["rows"])

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.orders["address"], **more}

    def reading(self, columns: str | None) -> Any:
        known = self.options(subscribe=self.orders["topic"])
        reader = self.spark.read.format(self.format).options(**known)
        if columns is None:
            return reader.load()
        if self.format == "moldau":
            return reader.schema(", ".join(f"{one} binary" for one in columns.split(","))).load()
        return reader.load().select(*columns.split(","))

    def rate(self, action: Any) -> Speed:
        before_s = processor_s()
        began = time.perf_counter()
        action()
        took_s = time.perf_counter() - began
        return Speed(self.rows / took_s / 1e6, (processor_s() - before_s) / self.rows * 1e6)

    def read(self, columns: str | None) -> Speed:
        # The requests of `load` to Spark's processes belong to a read.
        return self.rate(
            lambda: self.reading(columns).write.format("noop").mode("overwrite").save()
        )

    def write(self, rows: Any) -> Speed:
        known = self.options(topic=self.orders["target"])
        return self.rate(
            lambda: rows.write.format(self.format).options(**known).mode("append").save()
        )

    def streaming(self, topic: str, rows_per_batch: int | None) -> Any:
        known = self.options(subscribe=topic, startingOffsets="earliest")
        if rows_per_batch is not None:
            known["maxOffsetsPerTrigger"] = str(rows_per_batch)
        reader = self.spark.readStream.format(self.format).options(**known)
        if self.format == "moldau":
            reader = reader.schema("key binary, value binary")
        return reader.load().select("key", "value")

    def start(
        self, name: str, topic: str, rows_per_batch: int | None, sink: Any = None
    ) -> StreamingQuery:
        """Copies topic to topic in micro-batches, until all records are copied."""
        name = name.replace(",", "").replace(" ", "-")
        checkpoint = f"{self.orders['folder']}/{name}"
        rows = self.streaming(topic, rows_per_batch)
        writer = rows.writeStream.option("checkpointLocation", checkpoint)
        if sink is None:
            target = self.options(topic=self.orders["target"])
            writer = writer.format(self.format).options(**target)
        else:
            writer = writer.foreachBatch(sink(name, checkpoint))
        return writer.trigger(availableNow=True).start()

    def throughput(self, name: str, sink: Any = None) -> Speed:
        """Of a query that has been running for some batches."""
        rows_per_batch = self.rows // STREAM_BATCHES
        query = self.start(name, self.orders["topic"], rows_per_batch, sink)
        while query.isActive and len(with_rows(query)) < WARM_BATCHES:
            query.awaitTermination(LOOK_S)
        warm = len(with_rows(query))
        before_s = processor_s()
        query.awaitTermination()
        cost_s = processor_s() - before_s
        found = with_rows(query)
        # With few rows no batch may be left.
        found = found[min(warm, len(found) - 1) :]
        rows = sum(one["numInputRows"] for one in found)
        took_ms = sum(one["durationMs"]["triggerExecution"] for one in found)
        return Speed(rows / took_ms / 1000, cost_s / rows * 1e6)

    def latency(self, name: str, sink: Any = None) -> dict[str, float]:
        """Of batches with few rows, in milliseconds."""
        query = self.start(f"{name}-few", "few", int(self.orders["few per batch"]), sink)
        query.awaitTermination()
        took_ms = sorted(one["durationMs"]["triggerExecution"] for one in with_rows(query)[1:])
        last = len(took_ms) - 1
        return {
            "p50 ms": took_ms[last // 2],
            "p99 ms": took_ms[math.ceil(last * 0.99)],
            "batches": len(took_ms),
        }

    def at_least_once(self, name: str, checkpoint: str) -> Any:
        del name, checkpoint
        known = self.options(topic=self.orders["target"])

        def write(rows: Any, batch_id: int) -> None:
            del batch_id
            rows.write.format(self.format).options(**known).mode("append").save()

        return write

    def exactly_once(self, name: str, checkpoint: str) -> Any:
        from moldau.spark import ExactlyOnceSink

        return ExactlyOnceSink(name, checkpoint, self.options(topic=self.orders["target"]))

    # The measurements

    def speed(self) -> dict[str, Any]:
        rounds = int(self.orders["rounds"])
        found: dict[str, Any] = {}

        def note(label: str, value: Any) -> None:
            found[label] = value
            sys.stdout.write(f"PART {label}: {json.dumps(value)}\n")
            sys.stdout.flush()

        note("read 7 columns, cold", best([self.read(None)]))
        for label, columns in COLUMNS.items():
            note(label, best([self.read(columns) for _ in range(rounds)]))
        cached = self.reading("key,value").cache()
        cached.count()
        note("write, cold", best([self.write(cached)]))
        note("write", best([self.write(cached) for _ in range(rounds)]))
        cached.unpersist()
        copies = [self.write(self.reading("key,value")) for _ in range(rounds)]
        note("topic to topic", best(copies))
        sinks: dict[str, Any] = {"stream": None}
        if self.format == "moldau":
            sinks["stream, at least once by foreachBatch"] = self.at_least_once
            sinks["stream, exactly once"] = self.exactly_once
        tries: dict[str, list[Speed]] = {label: [] for label in sinks}
        # In turns, so that other load on the machine affects all of them.
        for number in range(rounds):
            for label, sink in sinks.items():
                tries[label].append(self.throughput(f"{label}-{number}", sink))
        for label, speeds in tries.items():
            note(label, best(speeds))
        for label, sink in sinks.items():
            note(f"latency, {label}", self.latency(label, sink))
        return found

    def backlog(self) -> dict[str, Any]:
        """All rows at once: read, and copied exactly once in one micro-batch."""
        read = self.read(None)
        topic = self.orders["topic"]
        copied = self.rate(
            lambda: self.start("backlog", topic, None, self.exactly_once).awaitTermination()
        )
        return {"read": best([read]), "exactly once, one batch": best([copied])}


def main() -> None:
    orders = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    Path(orders["folder"]).mkdir(parents=True, exist_ok=True)
    work = Work(orders)
    try:
        found = work.backlog() if orders["part"] == "backlog" else work.speed()
    finally:
        work.spark.stop()
    sys.stdout.write(f"\nMEASURED {json.dumps(found)}\n")


if __name__ == "__main__":
    main()
