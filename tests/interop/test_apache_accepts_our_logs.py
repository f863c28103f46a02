"""DumpLogSegments finds no fault in logs that we wrote, recovered, compacted or extended."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.dump import dump, faults
from interop.our_logs import Writer, read_all
from interop.our_node import OurNode, sample_configs
from storage.samples import CLUSTER_ID, NODE_ID, expected_partitions, unpack

from moldau.config.log import LogConfig
from moldau.protocol.records.compression import Compression
from moldau.storage.log.log import Log
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop
NOW_MS = 1_700_000_000_000
SMALL_SEGMENTS = LogConfig(
    internal_segment_bytes=40_000, index_interval_bytes=1_000, retention_ms=-1
)
COMPACTED = LogConfig(
    cleanup_policy=("compact",), internal_segment_bytes=20_000, index_interval_bytes=500
)
each_codec = pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: str(codec.name))
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OurNode]:
    with OurNode.formatted(tmp_path / "logs") as node:
        yield node


def write_batches(writer: Writer, batches: int, *, seed: int = 1, keys: int = 50) -> None:
    """Records of many sizes, in time order, ten to a batch."""
    chance = random.Random(seed)
    for batch in range(batches):
        now_ms = NOW_MS + batch * 1000
        records = [
            (
                now_ms + n,
                b"key-%d" % chance.randrange(keys),
                chance.randbytes(chance.randrange(200)),
            )
            for n in range(10)
        ]
        writer.append(records, now_ms, headers=(("batch", b"%d" % batch), ("none", None)))


def segments_of(log: Log) -> list[Path]:
    return sorted(log.path.glob("*.log"))


@each_codec
@pytest.mark.parametrize("clock", ["CreateTime", "LogAppendTime"])
def test_a_log_of_each_codec_and_clock_is_without_fault(
    apache: ApacheOracle, node: OurNode, codec: Compression, clock: str
) -> None:
    config = LogConfig(
        internal_segment_bytes=40_000,
        index_interval_bytes=1_000,
        retention_ms=-1,
        message_timestamp_type=clock,
    )
    log = node.create(ORDERS, config)
    writer = Writer(log, codec=codec)
    write_batches(writer, 120)
    assert read_all(log) == writer.written
    node.stop()

    assert faults(apache, log.path) == []
    printed = dump(apache, *segments_of(log))
    assert len(segments_of(log)) > 1
    assert [int(record["offset"]) for record in printed.records] == list(range(1200))
    assert [int(record[clock]) for record in printed.records] == [
        record.timestamp for record in writer.written
    ]
    assert {batch["compresscodec"] for batch in printed.batches} == {codec.name.lower()}


def write_transactions(log: Log) -> list[Writer]:
    """Three interleaved producers that commit, abort, and leave one transaction open."""
    writers = [Writer(log, producer_id=1000 + n, coordinator_epoch=3) for n in range(3)]
    now_ms = NOW_MS
    for turn in range(90):
        now_ms += 1000
        writer = writers[turn % 3]
        writer.append([(now_ms, b"k", b"v" * 300)] * 3, now_ms, is_transactional=True)
        if turn % 4 == 3:
            writer.end_transaction(now_ms, commit=turn % 8 == 3)
    return writers


def test_transactions_with_aborts_are_without_fault(apache: ApacheOracle, node: OurNode) -> None:
    log = node.create(ORDERS, SMALL_SEGMENTS)
    write_transactions(log)
    log.raise_high_watermark(log.log_end_offset)
    aborted = [entry for segment in log.segments for entry in segment.transaction_index.entries]
    producers = {entry.producer_id: entry for entry in log.producers}
    node.stop()

    assert faults(apache, log.path) == []
    indexes = sorted(log.path.glob("*.txnindex"))
    shown = [line for line in dump(apache, *indexes).lines if line.startswith("version: 0 ")]
    assert len(aborted) > 5
    assert shown == [
        f"version: 0 producerId: {each.producer_id} firstOffset: {each.first_offset} "
        f"lastOffset: {each.last_offset} lastStableOffset: {each.last_stable_offset}"
        for each in aborted
    ]
    newest = max(log.path.glob("*.snapshot"))
    entries = [line for line in dump(apache, newest).lines if line.startswith("producerId: ")]
    assert len(entries) == len(producers) == 3
    for line in entries:
        entry = producers[int(line.split()[1])]
        assert f"lastSequence: {entry.last_sequence} lastOffset: {entry.last_data_offset}" in line
        assert "coordinatorEpoch: 3" in line


@each_codec
def test_a_compacted_log_is_without_fault(
    apache: ApacheOracle, node: OurNode, codec: Compression
) -> None:
    log = node.create(ORDERS, COMPACTED)
    writer = Writer(log, codec=codec)
    write_batches(writer, 100)
    writer.append([(NOW_MS, b"key-1", None), (NOW_MS, b"key-2", None)], NOW_MS)
    log.roll(NOW_MS)
    writer.append([(NOW_MS, b"key-1", b"again")], NOW_MS)
    last = {record.key: record.value for record in writer.written}
    log.raise_high_watermark(log.log_end_offset)

    node.compact(log, NOW_MS)

    left = read_all(log)
    assert len(left) < len(writer.written) // 4
    assert {record.key: record.value for record in left} == last
    assert [record for record in writer.written if record in left] == left
    node.stop()
    assert faults(apache, log.path, gaps_allowed=True) == []
    printed = dump(apache, *segments_of(log))
    assert [int(record["offset"]) for record in printed.records] == [r.offset for r in left]


def test_compacted_transactions_are_without_fault(apache: ApacheOracle, node: OurNode) -> None:
    """Aborted records are removed, markers stay for delete.retention.ms, even after a
    second pass.
    """
    log = node.create(ORDERS, COMPACTED)
    write_transactions(log)
    now_ms = NOW_MS + 200_000
    # Everything up to the open transaction may be cleaned, unless it is in the active segment.
    log.roll(now_ms)
    Writer(log).append([(now_ms, b"other", b"value")], now_ms)
    log.raise_high_watermark(log.log_end_offset)
    committed = read_all(log, committed=True)

    node.compact(log, now_ms)
    node.compact(log, now_ms + 2 * COMPACTED.delete_retention_ms)

    left = read_all(log, committed=True)
    assert {r.key: r.value for r in left} == {r.key: r.value for r in committed}
    node.stop()
    assert faults(apache, log.path, gaps_allowed=True) == []


@pytest.mark.parametrize("damage", ["none", "torn tail", "garbage tail", "lost indexes"])
def test_a_log_recovered_after_a_crash_is_without_fault(
    apache: ApacheOracle, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "logs"
    with OurNode.formatted(folder) as node:
        log = node.create(ORDERS, SMALL_SEGMENTS)
        writer = Writer(log, codec=Compression.LZ4, producer_id=5)
        write_batches(writer, 120)
        node.crash()
    active = segments_of(log)[-1]
    expected = writer.written
    if damage == "torn tail":
        active.write_bytes(active.read_bytes()[:-20])
        expected = expected[:-10]
    elif damage == "garbage tail":
        active.write_bytes(active.read_bytes() + bytes(range(100)))
    elif damage == "lost indexes":
        for index in (*folder.glob("*/*.index"), *folder.glob("*/*.timeindex")):
            index.unlink()

    with OurNode(folder, configs={"orders": SMALL_SEGMENTS}) as node:
        recovered = node[ORDERS]
        assert read_all(recovered) == expected
        node.stop()

    assert faults(apache, log.path) == []


@pytest.mark.parametrize("which", ["clean", "dirty"])
def test_directories_of_apache_stay_without_fault_when_we_recover_and_extend_them(
    apache: ApacheOracle, tmp_path: Path, which: str
) -> None:
    folder = unpack("clean" if which == "clean" else "dirty", tmp_path / "logs")
    expected = expected_partitions()
    configs = sample_configs()
    now_ms = 1_800_000_000_000
    written = {}
    with OurNode(folder, configs=configs, cluster_id=CLUSTER_ID, node_id=NODE_ID) as node:
        for name in expected:
            before = read_all(node[name])
            writer = Writer(node[name], codec=Compression.ZSTD, producer_id=90_000)
            writer.append([(now_ms, b"key-%d" % n, b"added") for n in range(50)], now_ms)
            assert read_all(node[name])[: len(before)] == before
            written[name] = before + writer.written
        compacted = node[TopicPartition("compacted", 0)]
        compacted.roll(now_ms)
        node.compact(compacted, now_ms)
        node.stop()
    for name, records in written.items():
        compacts = name.topic == "compacted"
        assert faults(apache, folder / str(name), gaps_allowed=compacts) == []
        if compacts:
            continue
        printed = dump(apache, *sorted((folder / str(name)).glob("*.log")))
        data = [int(r["offset"]) for r in printed.records if "endTxnMarker" not in r]
        assert [r.offset for r in records] == [o for o in data if o >= expected[name].log_start]
