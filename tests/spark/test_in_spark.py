"""Source and sink in Spark itself: found by name, in batches and streams, as users write them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from spark.rows import fresh_topic, read_batch, send_numbers, values

from moldau import Admin
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

PATIENCE_S = 120


def reading(session: Any, node: ThreadBroker, topic: str, **options: str) -> Any:
    known = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic}
    return session.read.format("moldau").options(**known, **options)


def streaming(session: Any, node: ThreadBroker, topic: str, **options: str) -> Any:
    known = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic}
    known["startingOffsets"] = "earliest"
    return session.readStream.format("moldau").options(**(known | options))


def copy(
    rows: Any, node: ThreadBroker, topic: str, checkpoint: Path, **options: str
) -> list[dict[str, Any]]:
    """Runs a query until it has processed the existing records; returns its progress."""
    query = (
        rows.writeStream.format("moldau")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    return [json.loads(one.json) for one in query.recentProgress]


def test_a_batch_is_read_with_sparks_columns(session: Any, node: ThreadBroker) -> None:
    topic = fresh_topic(node, 3)
    send_numbers(node, topic, 2000)
    rows = reading(session, node, topic, includeHeaders="true").load()
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert rows.selectExpr("cast(cast(value as string) as int)").distinct().count() == 2000
    assert {row["partition"] for row in rows.select("partition").distinct().collect()} == {0, 1, 2}


def test_a_users_schema_prunes_and_tasks_split(session: Any, node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send_numbers(node, topic, 1000)
    rows = reading(session, node, topic, minPartitions="4").schema("value binary").load()
    assert rows.rdd.getNumPartitions() == 4
    assert rows.columns == ["value"]
    assert rows.selectExpr("sum(cast(cast(value as string) as int)) n").first()["n"] == 499_500


def test_filters_are_pushed_down_if_spark_allows_it(session: Any, node: ThreadBroker) -> None:
    topic = fresh_topic(node, 4)
    send_numbers(node, topic, 1000)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = reading(session, node, topic, pushFilters="true").load()
        few = rows.where("partition = 2 and offset >= 5 and offset < 8")
        assert few.rdd.getNumPartitions() == 1
        assert [row["offset"] for row in few.orderBy("offset").collect()] == [5, 6, 7]
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_an_empty_topic_and_a_temporary_view(session: Any, node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    assert reading(session, node, topic).load().count() == 0
    session.sql(
        "create or replace temporary view numbers using moldau options "
        f"(`kafka.bootstrap.servers` '{node.bootstrap}', subscribe '{topic}')"
    )
    send_numbers(node, topic, 5)
    assert session.sql("select count(*) n from numbers").first()["n"] == 5


def test_a_batch_is_written(session: Any, node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    rows = session.range(500).selectExpr("cast(id as string) key", "cast(id as string) value")
    (
        rows.write.format("moldau")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("topic", topic)
        .mode("append")
        .save()
    )
    read = read_batch(node, subscribe=topic)
    assert sorted(map(int, values(read))) == list(range(500))
    # Spark does not consult a Python source about its default mode; the error says what to do.
    with pytest.raises(AnalysisException) as caught:
        rows.write.format("moldau").save()
    assert re.fullmatch(r".*SAVE_MODE.*\"moldau\".*\"Append\".*", str(caught.value).strip())


def test_a_stream_resumes_where_it_stopped(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    topic, target = fresh_topic(node, 2), fresh_topic(node, 2)
    send_numbers(node, topic, 100)
    options = {"maxOffsetsPerTrigger": "40", "kafka.group.id": f"group-{topic}"}
    rows = streaming(session, node, topic, **options).load().select("key", "value")
    first = copy(rows, node, target, tmp_path / "checkpoint")
    assert sum(one["numInputRows"] for one in first) == 100
    assert len(first) >= 3
    assert sum(first[-1]["sources"][0]["latestOffset"][topic].values()) == 100
    send_numbers(node, topic, 20, first=100)
    again = copy(rows, node, target, tmp_path / "checkpoint")
    assert sum(one["numInputRows"] for one in again) == 20
    assert sorted(map(int, values(read_batch(node, subscribe=target)))) == list(range(120))
    with Admin(node.bootstrap) as admin:
        committed = admin.list_group_offsets([f"group-{topic}"])[f"group-{topic}"]
    assert isinstance(committed, dict)
    # The progress of the last batch is reported, too.
    assert sum(row.offset for row in committed.values()) == 120


def test_a_running_query_reads_new_records(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    topic, target = fresh_topic(node), fresh_topic(node)
    rows = streaming(session, node, topic).load().select("key", "value")
    query = (
        rows.writeStream.format("moldau")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for first in (0, 50):
            send_numbers(node, topic, 50, first=first)
            query.processAllAvailable()
            assert len(read_batch(node, subscribe=target)) == first + 50
    finally:
        query.stop()


def test_stateful_queries_run_on_the_source(session: Any, node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    send_numbers(node, topic, 100)
    counts = (
        streaming(session, node, topic)
        .load()
        .selectExpr("cast(cast(value as string) as int) % 3 as rest")
        .groupBy("rest")
        .count()
    )
    query = (
        counts.writeStream.format("memory")
        .queryName("rests")
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    found = {row["rest"]: row["count"] for row in session.table("rests").collect()}
    assert found == {0: 34, 1: 33, 2: 33}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOfsets": "latest"}, "did you mean startingOffsets?"),
        ({"kafka.fetch.max.byte": "1"}, "did you mean fetch.max.bytes?"),
        ({"startingOffsets": "latest"}, "reads nothing in a batch"),
    ],
)
def test_wrong_options_are_reported_through_spark(
    session: Any, node: ThreadBroker, options: dict[str, str], message: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        reading(session, node, "any", **options).load().count()
    assert message in str(caught.value)


def test_deleted_records_fail_the_query_unless_configured_otherwise(
    session: Any, node: ThreadBroker
) -> None:
    from pyspark.errors import PySparkException

    from moldau.types import TopicPartition

    topic = fresh_topic(node)
    send_numbers(node, topic, 10)
    with Admin(node.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 4})
    offsets = {"startingOffsets": json.dumps({topic: {"0": 0}})}
    with pytest.raises(PySparkException, match="the log begins at 4 now"):
        reading(session, node, topic, **offsets).load().count()
    assert reading(session, node, topic, failOnDataLoss="false", **offsets).load().count() == 6


def test_the_pages_examples_run(session: Any, node: ThreadBroker, tmp_path: Path) -> None:
    import re

    page = (Path(__file__).parents[2] / "docs" / "how-to" / "spark.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    known: dict[str, Any] = {}
    node.create_topic("orders", 2)
    for block in blocks:
        code = block.replace("127.0.0.1:9092", node.bootstrap)
        exec(code.replace("/data/checkpoints", str(tmp_path)), known)
    known["query"].processAllAvailable()
    known["query"].stop()
    known["sink"].close()
    assert len(read_batch(node, subscribe="orders.big")) == 99
