"""The files around the records equal, to the byte, those of Apache Kafka 4.3.1 for the same
records.

Needs no JVM: the samples are files of Apache Kafka, so this runs with every `make test`.
"""

from pathlib import Path

from interop.our_node import OurNode, sample_configs
from storage.samples import CLUSTER_ID, NODE_ID, expected_partitions, unpack

from moldau.protocol.records.batches import iterate_batches
from moldau.types import LeaderEpoch

NOW_MS = 1_794_740_000_000
REBUILT_SUFFIXES = {".index", ".timeindex", ".txnindex", ".snapshot"}
# Epochs may begin without a record, and the topic's id is not in the records either.
KEPT_NAMES = {"leader-epoch-checkpoint", "partition.metadata"}
# The same lines in another order, and a marker with the broker's epoch.
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.name not in KEPT_NAMES
    }


def test_files_that_recovery_rebuilds_from_records_equal_apaches(tmp_path: Path) -> None:
    """Offset, time and transaction indexes and producer snapshots, of compacted logs too."""
    theirs = unpack("clean", tmp_path / "theirs")
    ours = unpack("clean", tmp_path / "ours")
    (ours / ".kafka_cleanshutdown").unlink()
    (ours / "recovery-point-offset-checkpoint").unlink()
    names = [path.name for path in ours.iterdir() if path.is_dir()]
    names = [name for name in names if not name.startswith("__cluster") and "." not in name]
    removed = 0
    for name in names:
        for path in (ours / name).iterdir():
            if path.suffix in REBUILT_SUFFIXES:
                path.unlink()
                removed += 1
    assert removed > 40

    configs = sample_configs()
    with OurNode(ours, configs=configs, cluster_id=CLUSTER_ID, node_id=NODE_ID) as node:
        node.stop()

    for name in names:
        assert contents(ours / name) == contents(theirs / name), name
    for file_name in CHECKPOINTS:
        expected = (theirs / file_name).read_text().splitlines()
        assert sorted((ours / file_name).read_text().splitlines()) == sorted(expected)


def test_appending_the_same_batches_creates_the_same_files(tmp_path: Path) -> None:
    """Segments roll at the same places; indexes and snapshots get the same entries."""
    theirs = unpack("clean", tmp_path / "theirs")
    configs = sample_configs()
    # Cleaning has merged segments of the compacted topic, which other tests cover.
    names = [name for name in expected_partitions() if name.topic != "compacted"]
    with OurNode.formatted(tmp_path / "ours") as node:
        for name in names:
            log = node.create(name, configs[name.topic])
            for segment in sorted((theirs / str(name)).glob("*.log")):
                for batch in iterate_batches(segment.read_bytes()):
                    log.append_as_follower(
                        batch.view, LeaderEpoch(batch.partition_leader_epoch), NOW_MS
                    )
            log.raise_high_watermark(log.log_end_offset)
        node.stop()

    for name in names:
        assert contents(tmp_path / "ours" / str(name)) == contents(theirs / str(name)), name
