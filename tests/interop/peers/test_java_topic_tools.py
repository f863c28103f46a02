"""Apache's tools for topics, their settings, offsets, records and replicas."""

import json
import re
from pathlib import Path

import pytest
from interop.peers.java_tools import (
    CONFIGS,
    CONSOLE_PRODUCER,
    DELETE_RECORDS,
    LEADER_ELECTION,
    LOG_DIRS,
    OFFSETS,
    TOPICS,
    JavaTools,
)

pytestmark = pytest.mark.interop


def partition_line(topic: str, index: int) -> str:
    place = f"Topic: {topic}\tPartition: {index}"
    return f"\t{place}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "


def test_a_topic_is_created_described_grown_and_deleted(tools: JavaTools, name: str) -> None:
    created = tools.run(TOPICS, "--create", "--topic", name, "--partitions", "3")
    assert created == f"Created topic {name}.\n"
    assert name in tools.run(TOPICS, "--list").splitlines()

    head, *partitions = tools.run(TOPICS, "--describe", "--topic", name).splitlines()
    topic_id = re.search(r"TopicId: (\S{22})\t", head)
    assert topic_id is not None
    assert "\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: " in head
    assert partitions == [partition_line(name, index) for index in range(3)]
    by_id = tools.run(TOPICS, "--describe", "--topic-id", topic_id[1])
    assert by_id.splitlines()[0] == head

    tools.run(TOPICS, "--alter", "--topic", name, "--partitions", "5")
    described = tools.run(TOPICS, "--describe", "--topic", name).splitlines()
    assert described[1:] == [partition_line(name, index) for index in range(5)]
    assert topic_id[0] in described[0]
    fewer = tools.refused(TOPICS, "--alter", "--topic", name, "--partitions", "2")
    assert f"The topic {name} currently has 5 partition(s); 2 would not be an increase." in fewer

    tools.run(TOPICS, "--delete", "--topic", name)
    assert name not in tools.run(TOPICS, "--list").splitlines()
    missing = f"Topic '{name}' does not exist as expected"
    assert missing in tools.refused(TOPICS, "--describe", "--topic", name)
    assert missing in tools.refused(TOPICS, "--delete", "--topic", name)


def test_a_topic_gets_the_default_number_of_partitions(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name)
    assert "PartitionCount: 4" in tools.run(TOPICS, "--describe", "--topic", name)


def test_a_topic_gets_the_requested_replicas(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--replica-assignment", "1,1")
    described = tools.run(TOPICS, "--describe", "--topic", name).splitlines()
    assert described[1:] == [partition_line(name, 0), partition_line(name, 1)]


def test_an_invalid_topic_is_refused_with_the_reason(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", f"{name}.x")
    refusals = {
        f"Topic '{name}.x' already exists.": [f"{name}.x"],
        f"Topic '{name}_x' collides with existing topic: {name}.x": [f"{name}_x"],
        "Topic name is invalid: 'a/b'": ["a/b"],
        "Unable to replicate the partition 3 time": [name, "--replication-factor", "3"],
        "retention.ms": [name, "--config", "retention.ms=abc"],
        "nope": [name, "--config", "nope=1"],
    }
    for reason, arguments in refusals.items():
        assert reason in tools.refused(TOPICS, "--create", "--topic", *arguments)
    tools.run(TOPICS, "--create", "--topic", f"{name}.x", "--if-not-exists")
    tools.run(TOPICS, "--delete", "--topic", name, "--if-exists")


def test_no_partition_is_under_replicated_or_unavailable(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    for problem in ("under-replicated", "unavailable", "under-min-isr"):
        assert tools.run(TOPICS, "--describe", f"--{problem}-partitions") == ""
    least = tools.run(TOPICS, "--describe", "--topic", name, "--at-min-isr-partitions")
    assert least.splitlines() == [partition_line(name, 0)]


def test_a_topics_settings_are_set_shown_and_unset(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--config", "retention.ms=60000")
    entity = ["--entity-type", "topics", "--entity-name", name]
    setting = "retention.ms=60000 sensitive=false"
    own = "{DYNAMIC_TOPIC_CONFIG:retention.ms=60000}"
    assert tools.run(CONFIGS, *entity, "--describe").splitlines() == [
        f"Dynamic configs for topic {name} are:",
        f"  {setting} synonyms={own}",
    ]
    both = "cleanup.policy=[compact,delete],retention.ms=1000"
    done = f"Completed updating config for topic {name}.\n"
    assert tools.run(CONFIGS, *entity, "--alter", "--add-config", both) == done
    assert tools.run(CONFIGS, *entity, "--alter", "--delete-config", "retention.ms") == done
    policy = "cleanup.policy=compact,delete"
    sources = f"{{DYNAMIC_TOPIC_CONFIG:{policy}, DEFAULT_CONFIG:log.cleanup.policy=delete}}"
    line = f"  {policy} sensitive=false synonyms={sources}"
    assert tools.run(CONFIGS, *entity, "--describe").splitlines()[1:] == [line]
    wrong = tools.refused(CONFIGS, *entity, "--alter", "--add-config", "retention.ms=x")
    assert re.search(r"InvalidConfigurationException: .*retention\.ms", wrong)


# The output of Apache Kafka 4.3.1 for a topic without settings of its own.
ALL_TOPIC_SETTINGS = """\
cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}
compression.gzip.level=-1 sensitive=false synonyms={DEFAULT_CONFIG:compression.gzip.level=-1}
compression.lz4.level=9 sensitive=false synonyms={DEFAULT_CONFIG:compression.lz4.level=9}
compression.type=producer sensitive=false synonyms={DEFAULT_CONFIG:compression.type=producer}
compression.zstd.level=3 sensitive=false synonyms={DEFAULT_CONFIG:compression.zstd.level=3}
delete.retention.ms=86400000 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.delete.retention.ms=86400000}
file.delete.delay.ms=60000 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.delete.delay.ms=60000}
flush.messages=9223372036854775807 sensitive=false synonyms={DEFAULT_CONFIG:log.flush.interval.messages=9223372036854775807}
flush.ms=9223372036854775807 sensitive=false synonyms={}
follower.replication.throttled.replicas= sensitive=false synonyms={}
index.interval.bytes=4096 sensitive=false synonyms={DEFAULT_CONFIG:log.index.interval.bytes=4096}
leader.replication.throttled.replicas= sensitive=false synonyms={}
local.retention.bytes=-2 sensitive=false synonyms={DEFAULT_CONFIG:log.local.retention.bytes=-2}
local.retention.ms=-2 sensitive=false synonyms={DEFAULT_CONFIG:log.local.retention.ms=-2}
max.compaction.lag.ms=9223372036854775807 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.max.compaction.lag.ms=9223372036854775807}
max.message.bytes=1048588 sensitive=false synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}
message.timestamp.after.max.ms=3600000 sensitive=false synonyms={DEFAULT_CONFIG:log.message.timestamp.after.max.ms=3600000}
message.timestamp.before.max.ms=9223372036854775807 sensitive=false synonyms={DEFAULT_CONFIG:log.message.timestamp.before.max.ms=9223372036854775807}
message.timestamp.type=CreateTime sensitive=false synonyms={DEFAULT_CONFIG:log.message.timestamp.type=CreateTime}
min.cleanable.dirty.ratio=0.5 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.min.cleanable.ratio=0.5}
min.compaction.lag.ms=0 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.min.compaction.lag.ms=0}
min.insync.replicas=1 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1, DEFAULT_CONFIG:min.insync.replicas=1}
preallocate=false sensitive=false synonyms={DEFAULT_CONFIG:log.preallocate=false}
remote.log.copy.disable=false sensitive=false synonyms={}
remote.log.delete.on.disable=false sensitive=false synonyms={}
remote.storage.enable=false sensitive=false synonyms={}
retention.bytes=-1 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.bytes=-1}
retention.ms=604800000 sensitive=false synonyms={}
segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}
segment.index.bytes=1048576 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.index.size.max.bytes=1048576, DEFAULT_CONFIG:log.index.size.max.bytes=10485760}
segment.jitter.ms=0 sensitive=false synonyms={}
segment.ms=604800000 sensitive=false synonyms={}
unclean.leader.election.enable=false sensitive=false synonyms={DEFAULT_CONFIG:unclean.leader.election.enable=false}
"""  # noqa: E501


def test_all_settings_of_a_topic_have_apaches_defaults_and_sources(
    tools: JavaTools, name: str
) -> None:
    tools.run(TOPICS, "--create", "--topic", name)
    entity = ["--entity-type", "topics", "--entity-name", name]
    shown = tools.run(CONFIGS, *entity, "--describe", "--all").splitlines()[1:]
    assert [line.strip() for line in shown] == ALL_TOPIC_SETTINGS.splitlines()


def test_offsets_are_found_by_every_kind_of_timestamp(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "2")
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    for value in (b"1", b"2", b"3"):
        tools.run(CONSOLE_PRODUCER, "--topic", name, *keyed, stdin=b"a:" + value + b"\n")

    def offsets(*arguments: str) -> list[str]:
        return tools.run(OFFSETS, "--topic", name, *arguments).splitlines()

    (written,) = [line for line in offsets() if line.endswith(":3")]
    index = written.split(":")[1]
    empty = f"{name}:{1 - int(index)}"
    full = f"{name}:{index}"
    assert sorted(offsets()) == sorted([f"{empty}:0", f"{full}:3"])
    for earliest in ("-2", "earliest", "-4", "earliest-local"):
        assert sorted(offsets("--time", earliest)) == sorted([f"{empty}:0", f"{full}:0"])
    assert offsets("--time", "max-timestamp") == [f"{full}:2"]
    assert offsets("--time", "0") == [f"{full}:0"]
    assert offsets("--time", "latest-tiered") == []
    assert offsets("--time", str(1 << 60)) == []
    assert offsets("--partitions", index) == [f"{full}:3"]
    ranges = tools.run(OFFSETS, "--topic-partitions", f"{name}:{index}").splitlines()
    assert ranges == [f"{full}:3"]


def test_records_before_an_offset_are_deleted(tools: JavaTools, name: str, tmp_path: Path) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "2")
    tools.run(CONSOLE_PRODUCER, "--topic", name, stdin=b"".join(b"%d\n" % n for n in range(500)))
    ends = dict(
        line.removeprefix(f"{name}:").split(":")
        for line in tools.run(OFFSETS, "--topic", name).splitlines()
    )
    assert sum(map(int, ends.values())) == 500
    partition = max(ends, key=lambda index: int(ends[index]))
    wanted = int(ends[partition]) // 2
    request = {"topic": name, "partition": int(partition)}
    file = tmp_path / "offsets.json"

    def delete_before(offset: int) -> list[str]:
        content = {"version": 1, "partitions": [request | {"offset": offset}]}
        file.write_text(json.dumps(content))
        return tools.run(DELETE_RECORDS, "--offset-json-file", str(file)).splitlines()

    assert delete_before(wanted)[-1] == f"partition: {name}-{partition}\tlow_watermark: {wanted}"
    earliest = tools.run(OFFSETS, "--topic", name, "--time", "earliest").splitlines()
    assert f"{name}:{partition}:{wanted}" in earliest
    beyond = delete_before(int(ends[partition]) + 1)[-1]
    assert "OffsetOutOfRangeException" in beyond
    assert delete_before(-1)[-1].endswith(f"low_watermark: {ends[partition]}")


def test_log_directories_show_every_replica_with_its_size(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "2")
    tools.run(CONSOLE_PRODUCER, "--topic", name, stdin=b"value\n")
    arguments = ["--describe", "--broker-list", "1", "--topic-list", name]
    *_, content = tools.run(LOG_DIRS, *arguments).splitlines()
    (broker,) = json.loads(content)["brokers"]
    assert broker["broker"] == 1
    (folder,) = broker["logDirs"]
    assert folder["error"] is None
    if tools.server.node is not None:
        assert folder["logDir"] == str(tools.server.node.log_folder)
    shown = {each["partition"]: each for each in folder["partitions"]}
    assert set(shown) == {f"{name}-0", f"{name}-1"}
    assert all(each["offsetLag"] == 0 and not each["isFuture"] for each in shown.values())
    # One record in one batch: 61 bytes of header, the record's own length and its five others.
    assert sorted(each["size"] for each in shown.values()) == [0, 73]
    *_, everything = tools.run(LOG_DIRS, "--describe").splitlines()
    assert set(shown) < {
        each["partition"]
        for each in json.loads(everything)["brokers"][0]["logDirs"][0]["partitions"]
    }


def test_the_elected_leader_is_already_the_preferred_one(tools: JavaTools, name: str) -> None:
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    one = ["--topic", name, "--partition", "0"]
    elected = f"Valid replica already elected for partitions {name}-0\n"
    assert tools.run(LEADER_ELECTION, "--election-type", "preferred", *one) == elected
    assert tools.run(LEADER_ELECTION, "--election-type", "unclean", *one) == elected
    everywhere = ["--election-type", "preferred", "--all-topic-partitions"]
    assert tools.run(LEADER_ELECTION, *everywhere) == ""
    unknown = ["--election-type", "preferred", "--topic", f"no-{name}", "--partition", "0"]
    assert "UnknownTopicOrPartitionException" in tools.refused(LEADER_ELECTION, *unknown)
