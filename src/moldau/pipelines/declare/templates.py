"""The files that `moldau pipeline init` writes: working pipelines to start from."""

YAML = """\
# A pipeline: sources, steps in Spark SQL, and tests. Try it:
#   moldau pipeline check {file}
#   moldau pipeline test {file}
#   moldau pipeline run {file} --once
name: {name}
delivery: exactly_once            # or at_least_once
trigger: 1s                       # or available_now
settings: {{bootstrap.servers: "127.0.0.1:9092"}}
sources:
  orders:
    topic: orders
    format: json
    schema: "id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP"
    start: earliest
    dead_letter: orders.dlq       # what cannot be read goes here
steps:
  big:
    sql: SELECT * FROM orders WHERE amount > 100
    into: {{topic: orders.big, key: user}}
  per_user:
    sql: |
      SELECT window.start AS start, user, sum(amount) AS total
      FROM orders WATERMARK ts DELAY OF INTERVAL 10 MINUTES
      GROUP BY window(ts, '5 minutes'), user
    mode: upsert
    into: {{topic: orders.per_user, key: [user, start], compacted: true}}
tests:
  - name: small orders are left out
    given: {{orders: [{{id: 1, user: a, amount: 5}}, {{id: 2, user: b, amount: 500}}]}}
    expect: {{big: [{{id: 2, user: b, amount: 500}}]}}
"""

PYTHON = '''\
"""A pipeline. Try it: moldau pipeline check {file}; test; run --once."""

from pyspark.sql import functions as F

import moldau.pipelines as mp

settings = mp.pipeline(
    "{name}", trigger="1s", settings={{"bootstrap.servers": "127.0.0.1:9092"}}
)
orders = mp.topic(
    "orders",
    format=mp.json("id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP"),
    start="earliest",
    dead_letter="orders.dlq",
)


@mp.flow(into=mp.topic("orders.big", key="user"))
def big(orders):
    return orders.where("amount > 100")


@mp.flow(into=mp.topic("orders.per_user", key=["user", "start"], compacted=True), mode="upsert")
def per_user(orders):
    windows = orders.withWatermark("ts", "10 minutes").groupBy(F.window("ts", "5 minutes"), "user")
    return windows.agg(F.sum("amount").alias("total")).select("window.start", "user", "total")


small_orders = mp.example(
    "small orders are left out",
    given={{"orders": [{{"id": 1, "amount": 5}}, {{"id": 2, "amount": 500}}]}},
    expect={{"big": [{{"id": 2, "amount": 500}}]}},
)
'''
