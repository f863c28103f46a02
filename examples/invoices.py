"""A PostgreSQL table, exported continuously: row by row to a topic, and summed by customer into
another table.

    export DATABASE_URL=postgresql://moldau:…@127.0.0.1:5432/shop
    moldau pipeline run examples/invoices.py
"""

from pyspark.sql import DataFrame

import moldau.pipelines as mp

URL = "env:DATABASE_URL"

settings = mp.pipeline("invoices", trigger="1s", settings={"bootstrap.servers": "127.0.0.1:9092"})

# Rows are read in the order of `changed`, and of the primary key where `changed` is equal. The lag
# leaves open transactions ten seconds to commit.
invoices = mp.postgres(
    "invoices",
    url=URL,
    by="changed",
    lag="10s",
    schema="id BIGINT, customer STRING, amount DECIMAL(12,2), changed TIMESTAMP",
    tasks=4,
)


@mp.flow(into=mp.topic("invoices", key="id", compacted=True), mode="upsert")
def exported(invoices: DataFrame) -> DataFrame:
    return invoices


sums = mp.sql(
    "SELECT customer, count(*) AS changes, sum(amount) AS amount FROM invoices GROUP BY customer",
    into=mp.postgres("invoice_sums", url=URL, key="customer"),
    mode="upsert",
)

small = mp.example(
    "amounts are summed",
    given={
        "invoices": [
            {"id": 1, "customer": "Ada", "amount": "1.50"},
            {"id": 2, "customer": "Ada", "amount": "2.50"},
        ]
    },
    expect={"sums": [{"customer": "Ada", "changes": 2, "amount": 4.0}]},
)
