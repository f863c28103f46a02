"""Runs the writes in a file of cases with Spark's own connector, in Spark's own Python: prints one
JSON line with the outcome of each. It imports nothing of this project.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Failed tasks are not retried in a local session; batches are small.
    "spark.default.parallelism": "1",
}


def with_bytes(value: dict[str, str]) -> Any:
    return bytes.fromhex(value["hex"]) if "hex" in value else value


def write(spark: SparkSession, case: dict[str, Any]) -> str:
    schema = StructType.fromJson(case["schema"])
    rows = spark.createDataFrame([tuple(row) for row in case["rows"]], schema).coalesce(1)
    rows.write.format("kafka").options(**case["options"]).mode("append").save()
    return "written"


def main() -> None:
    jars, cases = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    seen: dict[str, str] = {}
    try:
        text = Path(cases).read_text(encoding="utf-8")
        for case in json.loads(text, object_hook=with_bytes):
            try:
                seen[case["name"]] = write(spark, case)
            except Exception as error:  # noqa: BLE001 - any error is a refusal
                seen[case["name"]] = f"refused: {str(error).splitlines()[0][:200]}"
    finally:
        spark.stop()
    sys.stdout.write(f"\nSEEN {json.dumps(seen)}\n")


if __name__ == "__main__":
    main()
