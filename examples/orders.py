"""Orders: cleaned, summed by window, kept as a table. The same pipeline as orders.yaml,
which `moldau demo` runs.

moldau pipeline test examples/orders.py
moldau pipeline run examples/orders.py
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import moldau.pipelines as mp

settings = mp.pipeline("orders", trigger="1s", settings={"bootstrap.servers": "127.0.0.1:9092"})
orders = mp.topic(
    "orders",
    format=mp.json("id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP"),
    start="earliest",
    dead_letter="orders.dlq",
    max_offsets_per_trigger=500_000,
)


@mp.flow()
def clean(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 0 AND user IS NOT NULL").withColumn("user", F.lower("user"))


@mp.flow(into=mp.topic("orders.big", key="user"))
def big(clean: DataFrame) -> DataFrame:
    return clean.where("amount > 100")


@mp.flow(into=mp.topic("orders.per_user", key=["user", "start"], compacted=True), mode="upsert")
def per_user(clean: DataFrame) -> DataFrame:
    windows = clean.withWatermark("ts", "5 minutes").groupBy(F.window("ts", "1 minute"), "user")
    summed = windows.agg(F.count("*").alias("orders"), F.sum("amount").alias("total"))
    return summed.select("window.start", "user", "orders", "total")


@mp.flow(into=mp.table("lake/orders", format="parquet", partition_by="day"))
def lake(clean: DataFrame) -> DataFrame:
    return clean.withColumn("day", F.to_date("ts"))


small_orders = mp.example(
    "small orders are left out",
    given={"orders": [{"id": 1, "user": "A", "amount": 5}, {"id": 2, "user": "B", "amount": 500}]},
    expect={"big": [{"id": 2, "user": "b", "amount": 500}]},
)
