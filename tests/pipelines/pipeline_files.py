"""Pipelines for tests, as users write them."""

from pathlib import Path

import moldau.pipelines as mp

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

ORDERS_YAML = """\
name: orders
delivery: exactly_once
trigger: 1s
sources:
  orders:
    topic: orders
    format: json
    schema: "id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP"
    start: {timestamp: 2026-11-01T00:00:00Z}
    dead_letter: orders.dlq
    max_offsets_per_trigger: 500000
steps:
  big:
    sql: SELECT * FROM orders WHERE amount > 100
    into: {topic: orders.big, key: user}
  per_user:
    sql: |
      SELECT window.start AS start, user, sum(amount) AS total
      FROM orders WATERMARK ts DELAY OF INTERVAL 10 MINUTES
      GROUP BY window(ts, '5 minutes'), user
    mode: upsert
    into: {topic: orders.per_user, key: user, compacted: true}
tests:
  - name: small orders are dropped
    given: {orders: [{id: 1, user: a, amount: 5}, {id: 2, user: b, amount: 500}]}
    expect: {big: [{id: 2, user: b, amount: 500}]}
"""

ORDERS_PYTHON = """\
import moldau.pipelines as mp

settings = mp.pipeline("orders", trigger="1s")
orders = mp.topic(
    "orders",
    format=mp.json("id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP"),
    start="earliest",
    dead_letter="orders.dlq",
)


@mp.flow(into=mp.topic("orders.big", key="user"))
def big(orders):
    return orders.where("amount > 100")


per_user = mp.sql(
    "SELECT user, sum(amount) AS total FROM orders GROUP BY user",
    into=mp.topic("orders.per_user", key="user", compacted=True),
    mode="upsert",
)
small = mp.example(
    "small orders are dropped",
    given={"orders": [{"id": 1, "user": "a", "amount": 5.0}]},
    expect={"big": []},
)
"""


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    return path


def example_here(name: str, folder: Path, changes: dict[str, str]) -> mp.Pipeline:
    """One of the examples, with changed addresses, in the folder of a test."""
    content = (EXAMPLES / name).read_text()
    for old, new in changes.items():
        assert old in content
        content = content.replace(old, new)
    return mp.load(written(folder, name, content))
