"""One of the two connectors at work, run by a Spark of its own: prints what it measured as JSON."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

STREAM_BATCHES = 5


class Work:
    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders = orders
        builder = SparkSession.builder.master("local[2]").appName("benchmark")
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",
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

    def rate(self, action: Any) -> float:
        began = time.perf_counter()
        action()
        return self.rows / (time.perf_counter() - began) / 1e6

    def read(self, columns: str | None) -> float:
        rows = self.reading(columns)
        return self.rate(lambda: rows.write.format("noop").mode("overwrite").save())

    def write(self) -> float:
        rows = self.cached
        known = self.options(topic=self.orders["target"])
        return self.rate(
            lambda: rows.write.format(self.format).options(**known).mode("append").save()
        )

    def copy(self) -> float:
        rows = self.reading("key,value")
        known = self.options(topic=self.orders["target"])
        return self.rate(
            lambda: rows.write.format(self.format).options(**known).mode("append").save()
        )

    def stream(self, name: str, sink: Any = None) -> dict[str, float]:
        """Topic to topic in micro-batches; without the first, which starts processes."""
        known = self.options(
            subscribe=self.orders["topic"],
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(self.rows // STREAM_BATCHES),
        )
        reader = self.spark.readStream.format(self.format).options(**known)
        if self.format == "moldau":
            reader = reader.schema("key binary, value binary")
        rows = reader.load().select("key", "value")
        checkpoint = f"{self.orders['folder']}/{name}"
        writer = rows.writeStream.option("checkpointLocation", checkpoint)
        if sink is None:
            target = self.options(topic=self.orders["target"])
            writer = writer.format(self.format).options(**target)
        else:
            writer = writer.foreachBatch(sink(name, checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        found = [one for one in query.recentProgress if one["numInputRows"]][1:]
        took_ms = sum(one["durationMs"]["triggerExecution"] for one in found)
        counted = sum(one["numInputRows"] for one in found)
        return {"M rows/s": counted / took_ms / 1000, "ms per batch": took_ms / len(found)}

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

    def run(self) -> dict[str, Any]:
        rounds = int(self.orders["rounds"])
        found: dict[str, Any] = {"read 7 columns, cold": self.read(None)}
        for label, columns in {
            "read 7 columns": None,
            "read key and value": "key,value",
            "read value": "value",
        }.items():
            found[label] = max(self.read(columns) for _ in range(rounds))
        self.cached = self.reading("key,value").cache()
        self.cached.count()
        found["write, cold"] = self.write()
        found["write"] = max(self.write() for _ in range(rounds))
        found["topic to topic"] = max(self.copy() for _ in range(rounds))
        found["stream"] = self.stream("plain")
        if self.format == "moldau":
            found["stream, at least once by foreachBatch"] = self.stream("alo", self.at_least_once)
            found["stream, exactly once"] = self.stream("eos", self.exactly_once)
        return found


def main() -> None:
    orders = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    Path(orders["folder"]).mkdir(parents=True, exist_ok=True)
    work = Work(orders)
    try:
        found = work.run()
    finally:
        work.spark.stop()
    sys.stdout.write(f"\nMEASURED {json.dumps(found)}\n")


if __name__ == "__main__":
    main()
