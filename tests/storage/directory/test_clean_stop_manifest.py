"""The manifest of a clean stop is compared with the files at the next start: a segment that is
missing or was cut between two batches is detected, although Kafka's formats cannot show it.
"""

import os
from pathlib import Path

import pytest
from storage.log_maker import close_after_the_test, open_directory, records_batch, values_of

from moldau.config.log import LogConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batches import iterate_batches
from moldau.storage.directory.checkpoints import HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE
from moldau.storage.directory.clean_stop_manifest import MANIFEST_FILE
from moldau.storage.directory.logs import Logs
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.inspection import InspectionOptions, inspect_path
from moldau.storage.inspection.items import Problem, PropertyFound
from moldau.storage.log.log import LogOptions
from moldau.types import LeaderEpoch, Offset, TopicPartition

NAME = TopicPartition("t", 0)
# Compacted: gaps are legal there, so only the manifest can show a loss.
CONFIG = LogConfig(internal_segment_bytes=2_000, cleanup_policy=("compact",))


def start(path: Path) -> Logs:
    logs = Logs(open_directory(path), lambda _: LogOptions(config=CONFIG))
    logs.load(now_ms=0)
    close_after_the_test(lambda: kill(logs))
    return logs


def kill(logs: Logs) -> None:
    for log in logs.by_partition.values():
        log.abandon()
    logs.directory.close()


def read_all(logs: Logs) -> list[bytes | None]:
    return values_of(logs.by_partition[NAME])


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A directory after a clean stop, with several segments."""
    logs = start(tmp_path)
    log = logs.create(NAME, None, now_ms=0)
    for number in range(60):
        log.append_as_leader(records_batch([b"%03d" % number * 30]), LeaderEpoch(0), 5)
    log.raise_high_watermark(log.log_end_offset)
    assert len(log.segments) > 3
    logs.stop()
    return tmp_path


def segment_files(path: Path) -> list[Path]:
    return sorted((path / "t-0").glob("*.log"))


def cut_between_batches(path: Path) -> None:
    content = path.read_bytes()
    last = list(iterate_batches(content))[-1]
    path.write_bytes(content[: last.position])


def check_refused(logs: Logs, message: str) -> None:
    assert logs.by_partition[NAME].damage is not None
    with pytest.raises(KafkaError, match=message) as refused:
        read_all(logs)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_missing_segment_is_detected(stopped: Path, place: int) -> None:
    path = segment_files(stopped)[place]
    path.unlink()
    check_refused(start(stopped), f"{path.name} is missing")


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_segment_cut_between_two_batches_is_detected(stopped: Path, place: int) -> None:
    path = segment_files(stopped)[place]
    cut_between_batches(path)
    check_refused(start(stopped), f"{path.name} had .* bytes and has")


def test_the_damage_outlives_stops_and_crashes(stopped: Path) -> None:
    cut_between_batches(segment_files(stopped)[1])
    for end in ("stop", "crash", "stop", "stop"):
        logs = start(stopped)
        check_refused(logs, "bytes and has")
        logs.stop() if end == "stop" else kill(logs)


def test_a_segment_that_is_restored_heals_the_log(stopped: Path) -> None:
    path = segment_files(stopped)[1]
    aside = path.rename(path.with_suffix(".aside"))
    kill(start(stopped))
    aside.rename(path)
    logs = start(stopped)
    assert logs.by_partition[NAME].damage is None
    assert len(read_all(logs)) == 60


def test_accepting_the_damage_keeps_the_sound_part_and_every_file(stopped: Path) -> None:
    files = segment_files(stopped)
    before = {path.name: path.read_bytes() for path in files}
    files[1].unlink()
    logs = start(stopped)
    log = logs.accept_damage(NAME, now_ms=0)
    assert log.damage is None
    sound = len(list(iterate_batches(before[files[0].name])))
    assert len(read_all(logs)) == sound == log.log_end_offset
    aside = {p.name: p.read_bytes() for p in (stopped / "t-0" / "quarantine").iterdir()}
    assert all(aside[path.name] == before[path.name] for path in files[2:])
    logs.stop()
    assert len(read_all(start(stopped))) == sound


def test_a_dump_shows_the_manifest_and_reports_a_broken_one(stopped: Path) -> None:
    path = stopped / MANIFEST_FILE
    options = InspectionOptions()
    shown = [item for item in inspect_path(path, options) if isinstance(item, PropertyFound)]
    assert [item.name for item in shown] == ["version", "witnesses", "logs"]
    path.write_bytes(path.read_bytes().replace(b"t-0", b"u-0"))
    (problem,) = [item for item in inspect_path(path, options) if isinstance(item, Problem)]
    assert "checksum" in problem.what


@pytest.mark.parametrize("high_watermark", [59, 60])
def test_the_manifest_is_ignored_once_another_program_has_used_the_directory(
    stopped: Path, high_watermark: int
) -> None:
    """Apache Kafka would leave the file alone, delete old segments and write its own checkpoints,
    which may even have the same content.
    """
    recovery_points = stopped / RECOVERY_POINT_FILE
    inventory = (stopped / MANIFEST_FILE).read_bytes()
    written_ns = recovery_points.stat().st_mtime_ns
    logs = start(stopped)
    run_here(logs.directory.writing_checkpoint(HIGH_WATERMARK_FILE, {NAME: Offset(high_watermark)}))
    logs.directory.mark_clean_stop()
    kill(logs)
    later_ns = written_ns + 1_000_000_000
    os.utime(recovery_points, ns=(later_ns, later_ns))
    (stopped / MANIFEST_FILE).write_bytes(inventory)
    segment_files(stopped)[0].unlink()
    again = start(stopped)
    assert again.by_partition[NAME].damage is None


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"00000000\n{}"])
def test_a_directory_works_without_a_manifest(stopped: Path, content: bytes | None) -> None:
    path = stopped / MANIFEST_FILE
    path.unlink() if content is None else path.write_bytes(content)
    assert len(read_all(start(stopped))) == 60
