"""The source `moldau` and Spark's own connector, with the same options: same rows, same columns,
same tasks, same batches, and both refuse the same options.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from interop.peers.java_tools import TOPICS, JavaTools
from interop.peers.spark_cases import run_cases
from interop.peers.toolchains import Spark
from pyspark.sql.datasource import CaseInsensitiveDict

from moldau import Admin, Producer
from moldau.protocol.errors import MoldauError
from moldau.types import TopicPartition
from pyspark_moldau import DefaultSource

pytestmark = pytest.mark.interop

JOB = Path(__file__).with_name("spark_cases_job.py")
HEAD = 3
"""The first record of `cut` that was not deleted."""


def fill(address: str, name: str, cut: str) -> None:
    headers = [("h", b"1"), ("h", None), ("", b"")]
    with Producer(address) as producer:
        for number in range(20):
            producer.send(
                name,
                [b"v%d" % number, None, b""][number % 3],
                key=[None, b"k", b""][number % 3],
                partition=number % 2,
                timestamp=1_000 + number,
                headers=headers if number % 4 == 0 else [],
            )
        for number in range(8):
            producer.send(cut, b"%d" % number, partition=0, timestamp=0)
    with Producer(address, transactional_id=name) as producer:
        with producer.transaction():
            producer.send(name, b"committed", partition=0, timestamp=2_000)
        producer.begin_transaction()
        producer.send(name, b"aborted", partition=0, timestamp=2_001)
        producer.flush()
        producer.abort_transaction()
    with Admin(address) as admin:
        admin.delete_records({TopicPartition(cut, 0): HEAD})


def cases_of(address: str, name: str, cut: str) -> list[dict[str, Any]]:
    # Spark's own connector reads uncommitted records by default.
    servers = {"kafka.bootstrap.servers": address, "kafka.isolation.level": "read_committed"}
    known = servers | {"subscribe": name}
    cut_known = known | {"subscribe": cut, "kafkaConsumer.pollTimeoutMs": "3000"}
    gone = {"startingOffsets": json.dumps({cut: {"0": 0}})}
    batches = {
        **{what: known | options for what, options in given_batches(name).items()},
        **{what: known | options for what, options in refused_batches(name).items()},
        "pattern": servers | {"subscribePattern": f"{name}.*|{cut}"},
        "assigned": servers | {"assign": json.dumps({name: [1]})},
        "a cut topic": cut_known,
        "records that are gone, left out": cut_known | gone | {"failOnDataLoss": "false"},
        "records that are gone": cut_known | gone,
        "no topics": servers,
        "empty topics": servers | {"subscribe": " , "},
        "empty pattern": servers | {"subscribePattern": " "},
        "wrong assignment": servers | {"assign": name},
        "a missing topic": servers | {"subscribe": f"{name}-missing"},
        "no broker": {"subscribe": name},
    }
    streams = {
        "limited": known | {"startingOffsets": at(name, 0, 7), "maxOffsetsPerTrigger": "4"},
        "unlimited": known | {"startingOffsets": "earliest"},
        "a stream with an end": known | {"endingOffsets": "latest"},
    }
    return [
        {"name": what, "streams": kind is streams, "options": options}
        for kind in (batches, streams)
        for what, options in kind.items()
    ]


def at(topic: str, first: int, second: int) -> str:
    """An offset for each partition."""
    return json.dumps({topic: {"0": first, "1": second}})


def given_batches(name: str) -> dict[str, dict[str, str]]:
    whole = {"endingOffsets": at(name, 10, 10)}
    lenient = {"startingOffsetsByTimestampStrategy": "latest"}
    return {
        "everything": {"includeHeaders": "true"},
        "uncommitted": {"kafka.isolation.level": "read_uncommitted"},
        "offsets": {"startingOffsets": at(name, -2, 4), "endingOffsets": at(name, 5, -1)},
        "to the committed end": {"endingOffsets": at(name, 12, 10)},
        "since": {"startingTimestamp": "1010"},
        "until": {"endingTimestamp": "1010"},
        "since, by partition": {"startingOffsetsByTimestamp": at(name, 1004, 1009)},
        "until, by partition": {"endingOffsetsByTimestamp": at(name, 1004, 9999)},
        "time before offsets": {"startingTimestamp": "1010", "startingOffsets": at(name, 0, 0)},
        "since ever": {"startingTimestamp": "9999"} | lenient,
        "more tasks": {"minPartitions": "7"} | whole,
        "small tasks": {"maxRecordsPerPartition": "3"} | whole,
        "small and more": {"maxRecordsPerPartition": "6", "minPartitions": "9"} | whole,
        "an empty range": {"startingOffsets": at(name, 4, 4), "endingOffsets": at(name, 4, 4)},
    }


def refused_batches(name: str) -> dict[str, dict[str, str]]:
    return {
        "topics twice": {"assign": json.dumps({name: [1]})},
        "begins at latest": {"startingOffsets": "latest"},
        "begins at -1": {"startingOffsets": at(name, -1, 0)},
        "ends at earliest": {"endingOffsets": "earliest"},
        "ends at -2": {"endingOffsets": at(name, -2, 1)},
        "partitions left out": {"startingOffsets": json.dumps({name: {"0": 1}})},
        "no JSON": {"startingOffsets": "{"},
        "a time that is none": {"startingTimestamp": "yesterday"},
        "too late": {"startingTimestamp": "9999"},
        "no tasks": {"minPartitions": "0"},
        "tasks without rows": {"maxRecordsPerPartition": "0"},
        "min above max": {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        "neither true nor false": {"failOnDataLoss": "perhaps"},
        "auto.offset.reset": {"kafka.auto.offset.reset": "earliest"},
        "enable.auto.commit": {"kafka.enable.auto.commit": "true"},
        "interceptors": {"kafka.interceptor.classes": "a.B"},
        "deserializer": {"kafka.value.deserializer": "a.B"},
    }


def ours(case: dict[str, Any]) -> dict[str, Any]:
    try:
        source = DefaultSource(CaseInsensitiveDict(case["options"]))
        return _stream(source) if case["streams"] else _batch(source)
    except MoldauError as error:
        return {"refused": str(error)}


def _batch(source: DefaultSource) -> dict[str, Any]:
    reader: Any = source.reader(source.schema())
    by_task = [
        [row for batch in reader.read(part) for row in batch.to_pylist()]
        for part in reader.partitions()
    ]
    rows = [row for task in by_task for row in task]
    rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
    return {
        "schema": source.schema().simpleString(),
        "tasks": len([task for task in by_task if task]),
        "rows": [_plain(row) for row in rows],
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    found = row | {"timestamp": round(row["timestamp"].timestamp() * 1000)}
    for name in ("key", "value"):
        found[name] = _hex(row[name])
    if row.get("headers") is not None:
        found["headers"] = [[one["key"], _hex(one["value"])] for one in row["headers"]]
    return found


def _hex(content: bytes | None) -> str | None:
    return None if content is None else content.hex().upper()


def _stream(source: DefaultSource) -> dict[str, Any]:
    reader: Any = source.streamReader(source.schema())
    reader.prepareForTriggerAvailableNow()
    ends = []
    position = reader.initialOffset()
    while (end := reader.latestOffset(position, reader.getDefaultReadLimit())) != position:
        ends.append({topic: at for topic, at in end.items() if not topic.startswith("@")})
        position = end
    return {"ends": ends}


def test_both_sources_give_and_refuse_the_same(
    connector: Spark, tools: JavaTools, name: str, tmp_path: Path
) -> None:
    cut = f"cut-{name}"
    # Their records are of 1970.
    kept = ("--config", "retention.ms=-1")
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "2", *kept)
    tools.run(TOPICS, "--create", "--topic", cut, "--partitions", "1", *kept)
    fill(tools.server.address, name, cut)
    cases = cases_of(tools.server.address, name, cut)
    theirs = run_cases(connector, JOB, json.dumps(cases), tmp_path)
    different = {}
    for case in cases:
        what = case["name"]
        found, wanted = ours(case), theirs[what]
        both_refuse = "refused" in found and "refused" in wanted
        if found != wanted and not both_refuse:
            different[what] = _difference(found, wanted)
    assert not different, json.dumps(different, indent=1)


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Short enough to be read."""
    for name in sorted({*found, *wanted}):
        here, there = found.get(name), wanted.get(name)
        if name == "rows" and here and there:
            rows = [(one, other) for one, other in zip(here, there, strict=False) if one != other]
            here, there = rows[0] if rows else (len(here), len(there))
        if here != there:
            return f"{name}: {here} here, {there} there"
    return ""
