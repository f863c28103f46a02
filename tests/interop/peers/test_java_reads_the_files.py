"""Apache's tools read the directory of a stopped node of the kind under test."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.dump import dump, faults
from interop.live_broker import CLUSTER_ID, LiveNode
from interop.peers.java_tools import (
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    STORAGE,
    TOPICS,
    JavaTools,
)
from interop.peers.servers import Server, requested

pytestmark = pytest.mark.interop

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 300


def fill(tools: JavaTools) -> None:
    """Records with every codec over several segments, a group with offsets, and settings."""
    small = ["--config", "segment.bytes=1048576", "--config", "index.interval.bytes=512"]
    tools.run(TOPICS, "--create", "--topic", "filled", "--partitions", "1", *small)
    noise = random.Random(1)
    for codec in CODECS:
        lines = b"".join(b"%s\n" % noise.randbytes(1000).hex().encode() for _ in range(PER_CODEC))
        tools.run(CONSOLE_PRODUCER, "--topic", "filled", "--compression-codec", codec, stdin=lines)
    read = ["--topic", "filled", "--group", "readers", "--from-beginning"]
    count = ["--max-messages", str(PER_CODEC * len(CODECS)), "--timeout-ms", "30000"]
    tools.run(CONSOLE_CONSUMER, *read, *count)
    entity = ["--entity-type", "topics", "--entity-name", "filled"]
    tools.run(CONFIGS, *entity, "--alter", "--add-config", "retention.ms=123456789")


@pytest.fixture
def left_behind(apache: ApacheOracle, start_node: Callable[[], LiveNode]) -> LiveNode:
    """A node that was used and then stopped."""
    node = start_node()
    fill(JavaTools(apache, Server(node.address, requested(), node)))
    node.stop()
    return node


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def test_all_files_of_a_stopped_node_are_sound_and_readable(
    apache: ApacheOracle, left_behind: LiveNode
) -> None:
    folders = sorted(path.parent for path in left_behind.log_folder.glob("*/*.log"))
    names = {folder.name for folder in folders}
    offsets = {f"__consumer_offsets-{index}" for index in range(4)}
    assert names == {"filled-0", "__cluster_metadata-0"} | offsets
    for folder in sorted(set(folders) - {left_behind.log_folder / "__cluster_metadata-0"}):
        assert faults(apache, folder) == []

    segments = logs(left_behind.log_folder / "filled-0")
    assert len(segments) > 1
    dumped = dump(apache, *segments, options=["--print-data-log"])
    assert [int(record["offset"]) for record in dumped.records] == list(range(1500))
    assert {batch["compresscodec"] for batch in dumped.batches} == set(CODECS)

    _check_groups(apache, left_behind.log_folder)
    _check_metadata(apache, left_behind.log_folder / "__cluster_metadata-0")
    _check_storage(apache, left_behind)


def _check_groups(apache: ApacheOracle, folder: Path) -> None:
    files = [path for index in range(4) for path in logs(folder / f"__consumer_offsets-{index}")]
    lines = dump(apache, *files, options=["--offsets-decoder"]).lines
    keys = [line for line in lines if line.startswith("| ") and '"group":"readers"' in line]
    committed = [line for line in keys if '"topic":"filled","partition":0' in line]
    assert f'"offset":{PER_CODEC * len(CODECS)}' in committed[-1]
    assert any('"protocolType":"consumer"' in line for line in keys)


def _check_metadata(apache: ApacheOracle, folder: Path) -> None:
    decoder = ["--cluster-metadata-decoder"]
    lines = dump(apache, *logs(folder), options=decoder).lines
    text = "\n".join(lines)
    kinds = set(re.findall(r'payload: \{"type":"(\w+)"', text))
    assert {
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "PRODUCER_IDS_RECORD",
    } <= kinds
    assert '"name":"retention.ms","value":"123456789"' in text
    assert "Error" not in text
    assert "could not be decoded" not in text

    snapshots = sorted(folder.glob("*.checkpoint"))
    assert snapshots, "formatting writes at least one snapshot"
    for snapshot in snapshots:
        control = [line for line in dump(apache, snapshot, options=decoder).lines if "|" in line]
        assert "SnapshotHeader" in control[0]
        assert any("KRaftVersion" in line for line in control)
        assert any("KRaftVoters" in line for line in control)
        assert "SnapshotFooter" in control[-1]


def _check_storage(apache: ApacheOracle, node: LiveNode) -> None:
    run = apache.run_tool(STORAGE, "info", "-c", str(node.properties))
    assert run.status == 0, run
    assert f"Found log directory:\n  {node.log_folder}\n" in run.output
    found = (
        rf"Found metadata: {{cluster.id={CLUSTER_ID}, directory.id=\S{{22}}, node.id=1, version=1}}"
    )
    assert re.search(found, run.output)
    again = apache.run_tool(
        STORAGE, "format", "-t", CLUSTER_ID, "-c", str(node.properties), "--standalone"
    )
    assert "already formatted" in again.output + again.errors
