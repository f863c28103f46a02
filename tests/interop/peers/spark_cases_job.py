"""Runs the reads in a file of cases with Spark's own connector, in Spark's own Python: prints one
JSON line with the rows of each, or that it failed. It imports nothing of this project.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}
PLAIN = (
    "hex(key) key",
    "hex(value) value",
    "topic",
    "partition",
    "offset",
    "unix_millis(timestamp) timestamp",
    "timestampType",
)
HEADERS = "transform(headers, h -> array(h.key, hex(h.value))) headers"


def batch(spark: SparkSession, options: dict[str, str]) -> dict[str, Any]:
    rows = spark.read.format("kafka").options(**options).load()
    columns = [*PLAIN, HEADERS] if "headers" in rows.columns else list(PLAIN)
    found = rows.selectExpr(*columns).orderBy("topic", "partition", "offset").collect()
    return {
        "schema": rows.schema.simpleString(),
        # It keeps tasks for empty ranges.
        "tasks": rows.selectExpr("spark_partition_id() id").distinct().count(),
        "rows": [row.asDict() for row in found],
    }


def stream(spark: SparkSession, options: dict[str, str]) -> dict[str, Any]:
    """The end offsets of each of its batches."""
    rows = spark.readStream.format("kafka").options(**options).load()
    query = rows.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    ends = [json.loads(one.json)["sources"][0]["endOffset"] for one in query.recentProgress]
    return {"ends": ends}


def main() -> None:
    jars, cases = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    seen: dict[str, Any] = {}
    try:
        for case in json.loads(Path(cases).read_text(encoding="utf-8")):
            work = stream if case["streams"] else batch
            try:
                seen[case["name"]] = work(spark, case["options"])
            except Exception as error:  # noqa: BLE001 - any error is a refusal
                seen[case["name"]] = {"refused": str(error).splitlines()[0][:200]}
    finally:
        spark.stop()
    sys.stdout.write(f"\nSEEN {json.dumps(seen)}\n")


if __name__ == "__main__":
    main()
