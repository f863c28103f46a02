"""Snapshots are made in time, old ones are deleted with the segments that only they needed, and
damaged ones are not used.
"""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from broker.metadata_node import (
    CLUSTER,
    RunningNode,
    bootstrapped,
    config,
    config_for,
    formatted,
    running,
    topic,
)
from support.proofs import proves
from support.waiting import until

from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.broker.quorum.log_start import MetadataLogError
from moldau.broker.quorum.snapshots import (
    MissingSnapshotError,
    SnapshotId,
    SnapshotStore,
    parse_snapshot_name,
)
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.snapshot_file import SnapshotHead, decode_snapshot, encode_snapshot
from moldau.core.metadata.snapshot_records import snapshot_records
from moldau.core.quorum.positions import LogPosition
from moldau.protocol.log_records import BeginTransactionRecord
from moldau.protocol.records.control_records import ControlType
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.testing.simulated_disk import Effect, SimulatedDisk
from moldau.types import LeaderEpoch, Offset

METADATA = "__cluster_metadata-0"
FIRST = "00000000000000000000-0000000000.checkpoint"
EVERY_KIB = {"metadata.log.max.record.bytes.between.snapshots": "1024"}
SMALL_SEGMENTS = {"internal.metadata.log.segment.bytes": "1500"}
KEEP_LITTLE = {
    **EVERY_KIB,
    **SMALL_SEGMENTS,
    "metadata.max.retention.bytes": "4000",
    "internal.metadata.delete.delay.millis": "0",
}


def snapshots_of(path: Path) -> list[str]:
    return sorted(each.name for each in (path / METADATA).glob("*.checkpoint"))


def image_of_snapshot(path: Path, name: str) -> MetadataImage:
    delta = MetadataDelta()
    for record in decode_snapshot((path / METADATA / name).read_bytes()).records:
        delta.replay(record)
    return delta.finish(Offset(0), LeaderEpoch(0), 0)


def anywhere(image: MetadataImage) -> MetadataImage:
    return replace(image, offset=Offset(0), epoch=LeaderEpoch(0), timestamp_ms=0)


async def commit_some(node: RunningNode, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        await node.commit(config(f"name-{number}", "value" * 10))


@proves("metadata.log.max.record.bytes.between.snapshots")
async def test_a_snapshot_is_made_when_enough_was_committed(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path, EVERY_KIB) as node:
        await bootstrapped(node)
        await commit_some(node, 2)
        assert snapshots_of(tmp_path) == [FIRST]
        await commit_some(node, 23, 2)
        await node.snapshots.stop()
        # The first may be gone by now.
        names = snapshots_of(tmp_path)
        assert names[-1] != FIRST
        newest = parse_snapshot_name(names[-1])
        assert newest is not None
        assert newest.epoch == 1
        assert 10 < newest.offset <= node.image.offset + 1
    read = decode_snapshot((tmp_path / METADATA / names[-1]).read_bytes())
    assert [kind for kind, _ in read.head.control_values] == [
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
    ]
    async with running(tmp_path, EVERY_KIB) as node:
        assert node.listener.events[0] == f"snapshot {newest.offset - 1}"
        assert node.image.configs == {
            next(iter(node.image.configs)): {f"name-{n}": "value" * 10 for n in range(25)}
        }


async def test_snapshots_contain_the_voters_once_kraft_version_is_raised(tmp_path: Path) -> None:
    settings = {**EVERY_KIB, "controller.quorum.voters": "1@127.0.0.1:9093"}
    options = FormatOptions(cluster_id=CLUSTER)
    format_node(DiskFileSystem(), config_for(tmp_path, settings), options, 1)
    heads = []
    for start in (0, 25):
        async with running(tmp_path, settings) as node:
            if start:
                node.quorum.raise_kraft_version(1)
                # A snapshot says what the log says up to its end, and no more.
                before = node.quorum.snapshot_head(node.image)
                assert before is not None
                assert before.control_values == ()
            else:
                await bootstrapped(node)
            await commit_some(node, 25, start)
            await node.snapshots.stop()
        newest = (tmp_path / METADATA / snapshots_of(tmp_path)[-1]).read_bytes()
        heads.append([kind for kind, _ in decode_snapshot(newest).head.control_values])
    assert heads == [[], [ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]]
    async with running(tmp_path) as node:
        assert node.quorum.kraft_version == 1


async def test_a_snapshot_equals_the_log_up_to_it(tmp_path: Path) -> None:
    formatted(tmp_path)
    images: dict[int, MetadataImage] = {}
    async with running(tmp_path, EVERY_KIB) as node:
        node.feed.subscribe(lambda _, image: images.update({image.offset: image}))
        await bootstrapped(node)
        for number in range(30):
            await node.commit(topic(f"topic-{number}"), config(f"n{number}", "x" * 50))
    made = snapshots_of(tmp_path)[1:]
    assert made
    for name in made:
        snapshot_id = parse_snapshot_name(name)
        assert snapshot_id is not None
        expected = images[snapshot_id.offset - 1]
        assert image_of_snapshot(tmp_path, name) == anywhere(expected)
        assert decode_snapshot((tmp_path / METADATA / name).read_bytes()).records == list(
            snapshot_records(expected)
        )


async def test_a_snapshot_is_made_when_enough_time_went_by(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await bootstrapped(node)
        node.clock.advance(3_599_000)
        await node.commit(topic("a"))
        await node.commit(topic("b"))
        assert snapshots_of(tmp_path) == [FIRST]
        node.clock.advance(2_000)
        await node.commit(topic("c"))
        await node.snapshots.stop()
        # The one from the format is older than a week by now.
        newest = f"{node.image.offset + 1:020d}-0000000001.checkpoint"
        await until(lambda: snapshots_of(tmp_path) == [newest])


@proves("metadata.log.max.snapshot.interval.ms")
@pytest.mark.parametrize("interval_ms", [100_000, 0])
async def test_the_time_between_snapshots_follows_the_settings(
    tmp_path: Path, interval_ms: int
) -> None:
    formatted(tmp_path)
    settings = {"metadata.log.max.snapshot.interval.ms": str(interval_ms)}
    async with running(tmp_path, settings) as node:
        await bootstrapped(node)
        node.clock.advance(99_000)
        await node.commit(topic("a"))
        assert snapshots_of(tmp_path) == [FIRST]
        node.clock.advance(2_000)
        await node.commit(topic("b"))
        await node.snapshots.stop()
        assert (snapshots_of(tmp_path) != [FIRST]) == (interval_ms > 0)


async def test_a_transaction_is_in_a_snapshot_or_after_it(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path, EVERY_KIB) as node:
        await bootstrapped(node)
        await commit_some(node, 3)
        before = node.image.offset
        await node.commit(topic("x"), BeginTransactionRecord(name="open"), topic("y"))
        await commit_some(node, 20, 3)
        # Inside a batch: reading could not resume there.
        assert node.image.offset == before + 1
    assert snapshots_of(tmp_path) == [FIRST]


@proves("metadata.max.retention.bytes", "internal.metadata.log.segment.bytes")
async def test_old_snapshots_go_with_the_segments_that_only_they_needed(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path, KEEP_LITTLE) as node:
        await bootstrapped(node)
        for number in range(120):
            await node.commit(config("same", f"{number}" * 20))
        log = node.quorum.log
    names = snapshots_of(tmp_path)
    assert FIRST not in names
    segments = sorted(each.name for each in (tmp_path / METADATA).glob("*.log"))
    assert segments[0] != "00000000000000000000.log"
    kept_bytes = sum(
        each.stat().st_size
        for pattern in ("*.log", "*.checkpoint")
        for each in (tmp_path / METADATA).glob(pattern)
    )
    assert kept_bytes < 8_000
    oldest = parse_snapshot_name(names[0])
    assert oldest is not None
    assert oldest.offset <= log.log.log_end_offset
    async with running(tmp_path, KEEP_LITTLE) as node:
        assert list(node.image.configs.values()) == [{"same": "119" * 20}]
        assert node.image.features["metadata.version"] == 30


async def test_a_log_that_is_truncated_to_its_start_ends_in_the_epoch_of_its_snapshot(
    tmp_path: Path,
) -> None:
    """A voter that took its log to end in epoch 0 would vote for any candidate."""
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await bootstrapped(node)
    async with running(tmp_path, KEEP_LITTLE) as node:
        log, committed = node.quorum.log, 0
        while log.start_offset == 0:
            await commit_some(node, 1, committed)
            committed += 1
        newest = log.snapshots.ids[0]
        assert (newest.epoch, newest.offset) == (2, log.start_offset)
        run_here(log.truncating(log.start_offset, node.clock.wall_ms()))
        assert log.end == LogPosition(LeaderEpoch(2), log.start_offset)


def test_a_snapshot_that_is_there_already_is_listed_once() -> None:
    disk = SimulatedDisk()
    disk.make_directory(Path("/d"))
    store = SnapshotStore(disk, Path("/d"))
    for _ in range(2):
        store.add(store.write(SnapshotId(3, 41), [b"content"]))
    assert store.ids == [SnapshotId(3, 41)]


@proves("metadata.max.retention.ms")
async def test_snapshots_go_by_age_and_the_newest_stays(tmp_path: Path) -> None:
    formatted(tmp_path)
    settings = {**EVERY_KIB, "metadata.max.retention.ms": "3600000"}
    async with running(tmp_path, settings) as node:
        await bootstrapped(node)
        committed = 0
        # A thread writes them, which may be delayed on a busy machine.
        while len(snapshots_of(tmp_path)) <= 2:
            assert committed < 4_000
            await commit_some(node, 40, committed)
            committed += 40
        await node.snapshots.stop()
        node.quorum.log.clean(node.clock.wall_ms() + 7_200_000)
        await until(lambda: len(snapshots_of(tmp_path)) == 1)
        (left,) = snapshots_of(tmp_path)
        assert left != FIRST
    async with running(tmp_path, settings) as node:
        assert len(next(iter(node.image.configs.values()))) == committed


def metadata_segments(path: Path) -> list[str]:
    return sorted(each.name for each in (path / METADATA).glob("*.log"))


@proves("metadata.log.segment.ms")
async def test_segments_of_the_metadata_log_are_sealed_by_their_age(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path, {"metadata.log.segment.ms": "100000"}) as node:
        await bootstrapped(node)
        for pause_ms, segments in ((90_000, 1), (20_000, 2), (90_000, 2), (20_000, 3)):
            node.clock.advance(pause_ms)
            await node.commit(topic(f"t-{node.quorum.last_offset}"))
            assert len(metadata_segments(tmp_path)) == segments


@proves("metadata.log.segment.bytes")
async def test_segments_of_the_metadata_log_are_sealed_by_their_size(tmp_path: Path) -> None:
    formatted(tmp_path)
    smallest = 8 << 20
    async with running(tmp_path, {"metadata.log.segment.bytes": str(smallest)}) as node:
        await bootstrapped(node)
        for megabytes in range(1, 10):
            await node.commit(*(config(f"n{each}", "x" * 32_700) for each in range(32)))
            assert len(metadata_segments(tmp_path)) == (1 if megabytes < 9 else 2)


@proves("internal.metadata.delete.delay.millis")
async def test_files_of_the_metadata_log_go_after_their_time(tmp_path: Path) -> None:
    formatted(tmp_path)
    settings = {**KEEP_LITTLE, "internal.metadata.delete.delay.millis": "100000"}
    async with running(tmp_path, settings) as node:
        await bootstrapped(node)
        for number in range(120):
            await node.commit(config("same", f"{number}" * 20))
        await node.snapshots.stop()
        now_ms = node.clock.wall_ms()

        def leftovers() -> set[Path]:
            return set((tmp_path / METADATA).glob("*.deleted"))

        old = leftovers()
        assert old
        node.quorum.log.clean(now_ms + 90_000)
        assert old <= leftovers()
        node.quorum.log.clean(now_ms + 110_000)
        # A thread removes them and signals nothing.
        await until(lambda: not old & leftovers())


def test_the_age_of_a_snapshot_is_known_without_asking_the_disk_again() -> None:
    disk, folder = SimulatedDisk(), Path("/metadata")
    path = folder / SnapshotId(1, 10).file_name
    disk.make_directory(folder)
    head = SnapshotHead(epoch=LeaderEpoch(1), timestamp_ms=7_000)
    SnapshotStore(disk, folder).write(SnapshotId(1, 10), encode_snapshot(head, [], now_ms=9_000))
    store = SnapshotStore(disk, folder)
    store.load(0)
    disk.fail_reads(path, OSError(errno.EIO, "the loop must not read this"))
    assert store.timestamp_ms(SnapshotId(1, 10)) == 7_000


def damage(path: Path) -> None:
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


async def test_a_damaged_snapshot_falls_back_to_an_older_one(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path, EVERY_KIB) as node:
        await bootstrapped(node)
        await commit_some(node, 60)
        before = node.image
    names = snapshots_of(tmp_path)
    assert len(names) > 2
    damage(tmp_path / METADATA / names[-1])
    async with running(tmp_path) as node:
        assert anywhere(node.image) == anywhere(before)
        assert node.listener.events[0] == f"snapshot {int(names[-2][:20]) - 1}"
    assert snapshots_of(tmp_path) == names[:-1]
    assert (tmp_path / METADATA / "quarantine" / names[-1]).exists()


async def test_without_any_sound_snapshot_the_whole_log_will_do(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path, EVERY_KIB) as node:
        await bootstrapped(node)
        await commit_some(node, 30)
        before = node.image
    for name in snapshots_of(tmp_path):
        damage(tmp_path / METADATA / name)
    async with running(tmp_path) as node:
        assert anywhere(node.image) == anywhere(before)
        assert node.quorum.is_leader  # the voters are in the log too


async def test_records_missing_in_snapshots_and_log_are_an_error(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path, KEEP_LITTLE) as node:
        await bootstrapped(node)
        await commit_some(node, 60)
    for name in snapshots_of(tmp_path):
        damage(tmp_path / METADATA / name)
    kept = sorted(each.name for each in (tmp_path / METADATA).iterdir())
    with pytest.raises(MissingSnapshotError, match="is damaged"):
        async with running(tmp_path):
            pass
    assert {name for name in kept if name.endswith(".log")} <= {
        each.name for each in (tmp_path / METADATA).iterdir()
    }
    assert len(snapshots_of(tmp_path)) == 1
    with pytest.raises(MissingSnapshotError, match="is damaged"):
        async with running(tmp_path):
            pass


async def test_a_first_snapshot_that_is_damaged_needs_another_format(tmp_path: Path) -> None:
    formatted(tmp_path)
    damage(tmp_path / METADATA / FIRST)
    with pytest.raises(Exception, match="there are no voters"):
        async with running(tmp_path):
            pass


async def test_half_written_snapshots_are_removed(tmp_path: Path) -> None:
    formatted(tmp_path)
    for name in ("00000000000000000005-0000000001.checkpoint.part", FIRST + ".deleted"):
        (tmp_path / METADATA / name).write_bytes(b"half")
    async with running(tmp_path):
        assert [each.name for each in (tmp_path / METADATA).glob("*.checkpoint*")] == [FIRST]


async def test_a_full_disk_costs_a_snapshot_and_no_more() -> None:
    path, disk = Path("/data"), SimulatedDisk()
    formatted(path, disk)
    async with running(path, EVERY_KIB, filesystem=disk) as node:
        await bootstrapped(node)
        refused: list[Effect] = []

        def no_room(effect: Effect) -> OSError | None:
            if refused or effect.kind != "append" or not effect.path.endswith(".part"):
                return None
            refused.append(effect)
            return OSError(errno.ENOSPC, "full")

        disk.error_of = no_room
        await commit_some(node, 20)
        await node.snapshots.stop()
        assert refused
        assert node.failures == []
        await node.commit(topic("a"))
    assert not any(".part" in name for name in disk.files())


async def test_damage_in_the_middle_of_the_log_is_not_taken_for_a_torn_end(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await bootstrapped(node)
        await commit_some(node, 30)
    path = tmp_path / METADATA / "00000000000000000000.log"
    damage(path)
    content = path.read_bytes()
    for _ in range(2):
        with pytest.raises(MetadataLogError, match="were committed and cannot be read"):
            async with running(tmp_path):
                pass
        assert path.read_bytes() == content


async def test_a_torn_end_is_cut(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path) as node:
        await bootstrapped(node)
        await commit_some(node, 3)
        before = node.image
    path = tmp_path / METADATA / "00000000000000000000.log"
    with path.open("ab") as file:
        file.write(path.read_bytes()[-50:])
    async with running(tmp_path) as node:
        assert anywhere(node.image) == anywhere(before)
        await node.commit(topic("a"))
    async with running(tmp_path) as node:
        assert "a" in node.image.topics


async def test_the_log_restarts_after_a_snapshot_that_is_ahead_of_it(tmp_path: Path) -> None:
    formatted(tmp_path)
    async with running(tmp_path, EVERY_KIB) as node:
        await bootstrapped(node)
        await commit_some(node, 30)
    names = snapshots_of(tmp_path)
    for pattern in ("*.log", "*.index", "*.timeindex", "*.snapshot", "recovery-point*", "leader*"):
        for each in (tmp_path / METADATA).glob(pattern):
            each.unlink()
    newest = parse_snapshot_name(names[-1])
    assert newest is not None
    async with running(tmp_path, EVERY_KIB) as node:
        assert node.listener.events[0] == f"snapshot {newest.offset - 1}"
        assert node.listener.batches[0].base_offset == newest.offset
        assert node.quorum.leader_epoch == 2
