"""Uses Kafka with Spark's own connector, run by Spark's own Python: prints one JSON line with its
results. Batch and streaming, written and read with the JVM connector. It imports nothing of this
project.

Batch and streaming, written and read with the JVM connector. It imports nothing of this project.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, col, concat, lit, struct

ROWS = 2000
STREAM_ROWS = 500


def session(jars: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("interop")
    for name, value in {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Job:
    """The steps share a session, the broker's address and the topic's name."""

    def __init__(self, spark: SparkSession, address: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.address = address
        self.topic = topic
        self.folder = folder

    def rows(self, first: int, count: int) -> DataFrame:
        number = col("id").cast("string")
        headers = array(struct(lit("source").alias("key"), lit(b"spark").alias("value")))
        return self.spark.range(first, first + count).select(
            number.alias("key"),
            concat(lit("value "), number).alias("value"),
            headers.alias("headers"),
        )

    def write(self, rows: DataFrame, topic: str) -> None:
        options = {"kafka.bootstrap.servers": self.address, "topic": topic}
        rows.write.format("kafka").options(**options).save()

    def read(self, **options: str) -> DataFrame:
        known = {"kafka.bootstrap.servers": self.address, "subscribe": self.topic}
        return self.spark.read.format("kafka").options(**known, **options).load()

    def batch(self) -> dict[str, object]:
        self.write(self.rows(0, ROWS), self.topic)
        everything = self.read(includeHeaders="true")
        values = everything.selectExpr("cast(key as string)", "cast(value as string)").distinct()
        headers = everything.selectExpr("headers[0].key", "cast(headers[0].value as string)")
        ends = everything.groupBy("partition").count().orderBy("partition").collect()
        return {
            "count": everything.count(),
            "distinct": values.count(),
            "headers": [list(row) for row in headers.distinct().collect()],
            "partitions": [row["partition"] for row in ends],
            "ends": {str(row["partition"]): row["count"] for row in ends},
            "limited": self.limited(ends),
        }

    def limited(self, ends: list[Any]) -> int:
        """Rows between explicit offsets: each partition from its first row up to ten."""
        starting = {self.topic: {str(row["partition"]): -2 for row in ends}}
        ending = {self.topic: {str(row["partition"]): 10 for row in ends}}
        options = {"startingOffsets": json.dumps(starting), "endingOffsets": json.dumps(ending)}
        return int(self.read(**options).count())

    def by_time(self) -> dict[str, int]:
        """Rows of a second write, found by its start time."""
        everything = self.read()
        last = everything.selectExpr("max(unix_millis(timestamp))").collect()[0][0]
        self.write(self.rows(ROWS, 100), self.topic)
        later = self.read(startingTimestamp=str(last + 1))
        before = self.read(endingTimestamp=str(last + 1))
        return {"later": later.count(), "before": before.count()}

    def stream(self, name: str, target: str) -> int:
        """Copies new rows to another topic and returns their number."""
        source = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.address)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(STREAM_ROWS))
            .load()
        )
        query = (
            source.select("key", "value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.address)
            .option("topic", target)
            .option("checkpointLocation", str(self.folder / name))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(120):
            raise SystemExit("the stream did not end")
        return sum(int(each["numInputRows"]) for each in query.recentProgress)

    def streaming(self) -> dict[str, object]:
        target = f"{self.topic}-copy"
        first = self.stream("copy", target)
        again = self.stream("copy", target)
        self.write(self.rows(ROWS + 100, 50), self.topic)
        more = self.stream("copy", target)
        options = {"kafka.bootstrap.servers": self.address, "subscribe": target}
        copied = self.spark.read.format("kafka").options(**options).load()
        return {
            "first": first,
            "again": again,
            "more": more,
            "copied": copied.count(),
            "distinct": copied.selectExpr("cast(value as string)").distinct().count(),
        }

    def transactions(self) -> dict[str, object]:
        """Rows by their first word, of a topic written in transactions by another producer."""
        topic = f"transactions-{self.topic}"
        known = {"kafka.bootstrap.servers": self.address, "subscribe": topic}
        seen: dict[str, object] = {}
        for isolation in ("read_committed", "read_uncommitted"):
            options = known | {"kafka.isolation.level": isolation}
            rows = self.spark.read.format("kafka").options(**options).load()
            first = rows.selectExpr("split(cast(value as string), ' ')[0] as first")
            seen[isolation] = {
                row["first"]: row["count"] for row in first.groupBy("first").count().collect()
            }
        return seen

    def pattern(self) -> int:
        options = {"kafka.bootstrap.servers": self.address, "subscribePattern": f"^{self.topic}.*"}
        return int(self.spark.read.format("kafka").options(**options).load().count())


def main() -> None:
    jars, address, topic, folder = sys.argv[1:]
    spark = session(jars)
    job = Job(spark, address, topic, Path(folder))
    try:
        seen = {
            "batch": job.batch(),
            "by_time": job.by_time(),
            "streaming": job.streaming(),
            "transactions": job.transactions(),
            "pattern": job.pattern(),
        }
    finally:
        spark.stop()
    sys.stdout.write(f"\nSEEN {json.dumps(seen)}\n")


if __name__ == "__main__":
    main()
