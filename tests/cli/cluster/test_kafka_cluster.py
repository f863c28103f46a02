"""`moldau cluster`, `logdirs`, `offsets`, `records` and `bench` on a running broker."""

import json
from pathlib import Path

import pytest
from cli.kafka_command import KafkaCommand

BASE_MS = 1_777_000_000_000


def test_the_cluster_is_described(kafka: KafkaCommand) -> None:
    found = kafka.json("cluster", "describe")
    (broker,) = found["brokers"]
    assert len(found["clusterId"]) == 22
    assert f"{broker['host']}:{broker['port']}" == kafka.address
    assert (broker["fenced"], broker["rack"]) == (False, None)
    levels = {feature["name"]: feature["level"] for feature in found["features"]}
    assert levels["metadata.version"] > 0
    lines = kafka("cluster", "describe").lines
    assert lines[0] == f"cluster {found['clusterId']}"
    assert kafka.address in lines[2]
    assert kafka.json("cluster", "features") == found["features"]


def test_the_quorum_has_a_leader(kafka: KafkaCommand) -> None:
    found = kafka.json("cluster", "quorum")
    assert [voter["nodeId"] for voter in found["voters"]] == [found["leaderId"]]
    assert found["highWatermark"] > 0
    assert kafka("cluster", "quorum").lines[0].startswith(f"leader {found['leaderId']}, epoch ")


def test_the_versions_of_the_protocol_are_listed(kafka: KafkaCommand) -> None:
    rows = {row["name"]: row for row in kafka.json("cluster", "api-versions")}
    assert rows["PRODUCE"] == {
        "apiKey": 0, "name": "PRODUCE", "minVersion": 0, "maxVersion": 13, "usable": 13,
    }  # fmt: skip
    (broker,) = kafka.json("cluster", "describe")["brokers"]
    again = kafka.json("cluster", "api-versions", "--broker", broker["brokerId"])
    assert len(again) == len(rows)
    assert "not in the cluster" in kafka("cluster", "api-versions", "--broker", 77, status=1).errors


def test_log_directories_show_their_replicas(kafka: KafkaCommand) -> None:
    topic = kafka.topic(2)
    kafka.fill(topic, ["some bytes"] * 10, "-p", 1)
    (directory,) = kafka.json("logdirs", topic)
    assert directory["error"] is None
    assert 0 < directory["usableBytes"] <= directory["totalBytes"]
    rows = {row["partition"]: row for row in directory["replicas"]}
    assert rows[0]["sizeBytes"] == 0
    assert rows[1]["sizeBytes"] > 100
    assert {row["topic"] for row in rows.values()} == {topic}
    assert directory["path"] in kafka("logdirs").lines[0]
    # The total is that of what is listed.
    kafka.fill(kafka.topic(), ["x" * 100_000])
    headline = kafka("logdirs", topic).lines[0]
    assert f": {rows[1]['sizeBytes']} B in replicas, " in headline
    assert "broker 77 does not exist" in kafka("logdirs", "--brokers", "77", status=1).errors


def test_log_directories_hide_internal_topics_by_default(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    move = ("--topic", topic, "--to-latest", "--execute", "--yes")
    kafka("groups", "reset-offsets", "makes-the-offsets-topic", *move)

    def shown(*arguments: str) -> set[str]:
        return {row["topic"] for row in kafka.json("logdirs", *arguments)[0]["replicas"]}

    assert not any(name.startswith("__") for name in shown())
    assert topic in shown()
    assert {topic, "__consumer_offsets"} <= shown("--internal")
    assert shown("__consumer_offsets") == {"__consumer_offsets"}
    assert "of internal topics not shown" in kafka("logdirs").lines[0]
    assert "not shown" not in kafka("logdirs", "--internal").output


@pytest.fixture(scope="module")
def timed(kafka: KafkaCommand) -> str:
    topic = kafka.topic(2, "-c", "retention.ms=-1")
    times = [0, 5000, 2000]
    lines = [json.dumps({"value": str(t), "timestamp": BASE_MS + t}) for t in times]
    kafka.fill(topic, lines, "--json", "--partition", 0)
    return topic


def test_offsets_first_last_and_by_time(kafka: KafkaCommand, timed: str) -> None:
    assert kafka.json("offsets", timed) == [
        {"topic": timed, "partition": 0, "earliest": 0, "latest": 3},
        {"topic": timed, "partition": 1, "earliest": 0, "latest": 0},
    ]
    lines = kafka("offsets", timed).lines
    assert lines[0].split() == ["TOPIC", "PARTITION", "EARLIEST", "LATEST", "RECORDS"]
    assert lines[1].split() == [timed, "0", "0", "3", "3"]

    def at(where: object) -> tuple[int | None, int | None]:
        (row,) = kafka.json("offsets", f"{timed}:0", "--at", where)
        return row["offset"], row["timestamp"]

    assert at("earliest") == (0, None)
    assert at("latest") == (3, None)
    assert at("max-timestamp") == (1, BASE_MS + 5000)
    assert at(BASE_MS + 1) == (1, BASE_MS + 5000)
    assert at("2026-04-24T03:06:40Z") == (0, BASE_MS)
    assert at(BASE_MS + 5001) == (None, None)


def test_all_topics_are_listed_if_none_is_named(kafka: KafkaCommand, timed: str) -> None:
    assert timed in {row["topic"] for row in kafka.json("offsets")}
    assert "does not exist" in kafka("offsets", "never-there-at-all", status=1).errors
    assert "has no partition 9" in kafka("offsets", f"{timed}:9", status=1).errors
    assert "is not a time" in kafka("offsets", timed, "--at", "noon", status=2).errors


def test_records_are_deleted_up_to_an_offset(kafka: KafkaCommand, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    for partition in (0, 1):
        kafka.fill(topic, map(str, range(10)), "-p", partition)
    assert kafka.json("records", "delete", f"{topic}:0", "--before", 4, "--yes") == [
        {"topic": topic, "partition": 0, "earliest": 4, "error": None}
    ]
    assert kafka("consume", f"{topic}:0").lines == list("456789")
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 1, "offset": 8}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    kafka("records", "delete", "--offset-json-file", tmp_path / "plan.json", "--yes")
    assert kafka("consume", f"{topic}:1").lines == list("89")
    kafka("records", "delete", topic, "--all", "--yes")
    assert kafka("consume", topic).lines == []
    ran = kafka("records", "delete", f"{topic}:0", "--before", 99, "--yes", status=1)
    assert ran.errors == f"moldau records delete: {topic}-0: OFFSET_OUT_OF_RANGE\n"
    for wrong in ([topic], [topic, "--all", "--before", 1], ["--all"]):
        kafka("records", "delete", *wrong, status=2)
    (tmp_path / "plan.json").write_text("{}")
    kafka("records", "delete", "--offset-json-file", tmp_path / "plan.json", "--yes", status=2)


def test_a_bench_measures_and_cleans_up(kafka: KafkaCommand) -> None:
    written = kafka.json("bench", "produce", "-n", 2000, "-s", "64", "-p", 2)
    assert (written["records"], written["failed"]) == (2000, 0)
    assert written["valueBytes"] == 2000 * 64
    assert written["recordsPerSecond"] > 0
    assert 0 < written["p50Ms"] <= written["p99Ms"] <= written["maxMs"]
    read = kafka.json("bench", "consume", "-n", 2000, "-s", "64")
    assert (read["records"], read["valueBytes"]) == (2000, 2000 * 64)
    found = kafka.json("bench", "latency", "-n", 20)
    assert found["records"] == 20
    assert 0 < found["acknowledged"]["p50Ms"] <= found["acknowledged"]["maxMs"]
    assert "latency  mean" in kafka("bench", "produce", "-n", 100, "--rate", 5000).output
    assert not [name for name in kafka("topics", "list", "-q").lines if "bench" in name]


def test_a_bench_can_use_an_existing_topic(kafka: KafkaCommand) -> None:
    topic = kafka.topic()
    kafka.json("bench", "produce", topic, "-n", 500)
    assert kafka.json("bench", "consume", topic)["records"] == 500
    assert topic in kafka("topics", "list", "-q").lines
    assert "is empty" in kafka("bench", "consume", kafka.topic(), status=1).errors
