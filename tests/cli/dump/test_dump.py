"""`moldau dump` on what Apache Kafka wrote, healthy and damaged, in all its formats."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli.command import Ran
from cli.command import moldau_here as moldau
from storage.samples import expected_partitions, unpack

LOG_NAME = "00000000000000000000.log"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def dirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("dirty", tmp_path_factory.mktemp("dirty"))


def objects(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.lines]


def test_a_clean_directory_has_one_row_per_partition_and_status_0(clean: Path) -> None:
    ran = moldau("dump", "--json", clean)
    assert (ran.status, ran.errors) == (0, "")
    rows = {row["partition"]: row for row in objects(ran) if row["type"] == "partition"}
    assert len(rows) == 19
    for partition, expected in expected_partitions().items():
        row = rows[str(partition)]
        assert row["endOffset"] == expected.high_watermark
        assert row["startOffset"] == expected.log_start
        assert row["problems"] == 0
    (head,) = [row for row in objects(ran) if row["type"] == "directory"]
    assert head["clusterId"] == "MkU3OEVBNTcwNTJENDM2Qg"
    assert head["stopped"] == "cleanly"


def test_the_directory_of_a_killed_broker_is_intact_and_reported_as_unclean(dirty: Path) -> None:
    ran = moldau("dump", dirty)
    assert ran.status == 0
    (note,) = [line for line in ran.lines if line.startswith("note: ")]
    assert "no clean-shutdown marker" in note


def test_a_check_prints_little_without_problems(clean: Path) -> None:
    ran = moldau("dump", "--check", clean / "txns-0")
    assert (ran.status, ran.output, ran.errors) == (0, "", "no problems found\n")


def test_json_has_every_record_that_clients_read(clean: Path) -> None:
    wanted = expected_partitions()
    folders = [clean / str(partition) for partition in wanted]
    ran = moldau("dump", "--json", "--records", *folders)
    assert ran.status == 0
    found: dict[str, list[tuple[int, str | None, str | None]]] = {str(p): [] for p in wanted}
    for row in objects(ran):
        if row["type"] == "record" and "controlType" not in row:
            value = row["payload"]
            digest = None if value is None else hashlib.sha256(value.encode()).hexdigest()[:16]
            found[Path(row["file"]).parent.name].append((row["offset"], row["key"], digest))
    for partition, expected in wanted.items():
        from_start = [one for one in found[str(partition)] if one[0] >= expected.log_start]
        assert from_start == [(r.offset, r.key, r.value_digest) for r in expected.records]


def test_plain_lines_are_those_of_apaches_tool(clean: Path) -> None:
    ran = moldau("dump", "--records", f"txns-0/{LOG_NAME}", cwd=clean)
    assert ran.lines[:2] == [f"Dumping txns-0/{LOG_NAME}", "Log starting offset: 0"]
    assert ran.lines[2] == (
        "baseOffset: 0 lastOffset: 4 count: 5 baseSequence: 0 lastSequence: 4 producerId: 0 "
        "producerEpoch: 0 partitionLeaderEpoch: 0 isTransactional: true isControl: false "
        "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1794732168920 size: 121 "
        "magic: 2 compresscodec: none crc: 873225869 isvalid: true"
    )
    assert ran.lines[3] == (
        "| offset: 0 CreateTime: 1794732168920 keySize: -1 valueSize: 5 sequence: 0 "
        "headerKeys: [] payload: tx0-0"
    )
    assert any(line.endswith("endTxnMarker: ABORT coordinatorEpoch: 0") for line in ran.lines)


def test_internal_records_are_shown_as_json_in_plain_lines(clean: Path) -> None:
    ran = moldau("dump", "--records", "__consumer_offsets-0", cwd=clean)
    commits = [line for line in ran.lines if '"topic":"codecs","partition":2' in line]
    assert any('payload: {"version":"4","data":{"offset":77' in line for line in commits)


def test_bytes_that_are_not_text_are_shown_in_hexadecimal(clean: Path) -> None:
    ran = moldau("dump", "--records", "--decode", "none", "__transaction_state-0", cwd=clean)
    assert any("key: 0x0000" in line for line in ran.lines)


def test_a_table_shows_the_batches(clean: Path) -> None:
    ran = moldau("dump", "--format", "table", f"codecs-0/{LOG_NAME}", cwd=clean, COLUMNS="120")
    assert ran.status == 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f" {codec} " in ran.output
    assert "5 batches, 200 records, next offset 200" in ran.output


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_a_table_fits_its_terminal(clean: Path, columns: str) -> None:
    ran = moldau("dump", "-r", "--format", "table", "codecs-0", cwd=clean, COLUMNS=columns)
    assert ran.status == 0
    rows = [line for line in ran.lines if not line.startswith(("codecs-0", " batch"))]
    assert max(map(len, rows)) <= int(columns)


@pytest.mark.parametrize("options", [("--limit", "3"), ("--max-bytes", "400")])
def test_a_limited_dump_reports_that_it_stopped_early(
    clean: Path, options: tuple[str, str]
) -> None:
    ran = moldau("dump", *options, clean / "txns-0" / LOG_NAME)
    assert ran.status == 0
    assert ran.lines[-1].endswith("stopped here, as requested")
    assert 2 <= sum(line.startswith("baseOffset") for line in ran.lines) <= 5


DAMAGED = [
    # File, position of the changed byte, expected text of the problem line.
    (f"codecs-0/{LOG_NAME}", 100, "checksum"),
    (f"codecs-0/{LOG_NAME}", 16, "not a batch: magic"),
    ("idempotent-0/00000000000000000000.index", 7, "no batch of the log begins"),
    ("idempotent-0/00000000000000000000.timeindex", 7, "largest timestamp"),
    ("txns-0/00000000000000000000.txnindex", 9, "producer"),
    ("txns-1/00000000000000000038.snapshot", 20, "checksum"),
    ("__cluster_metadata-0/00000000000000000066-0000000001.checkpoint", 300, "checksum"),
    ("codecs-0/leader-epoch-checkpoint", 0, "version"),
    ("codecs-0/partition.metadata", 0, "not a version"),
    ("recovery-point-offset-checkpoint", 2, "announced"),
    ("meta.properties", -2, "last line is cut off"),
    (".kafka_cleanshutdown", 0, "not JSON"),
    ("__cluster_metadata-0/quorum-state", 0, "not JSON"),
]


@pytest.mark.parametrize(
    ("name", "place", "what"), DAMAGED, ids=[f"{d[0]}@{d[1]}" for d in DAMAGED]
)
def test_a_changed_byte_is_a_problem_line_and_status_1(
    clean: Path, tmp_path: Path, name: str, place: int, what: str
) -> None:
    path = copy_with_neighbours(clean / name, tmp_path)
    content = bytearray(path.read_bytes())
    if name == "meta.properties":
        del content[place:]
    else:
        content[place] ^= 0x55
    path.chmod(0o600)
    path.write_bytes(content)
    ran = moldau("dump", path.relative_to(tmp_path), cwd=tmp_path)
    assert ran.status == 1
    complaints = [line for line in ran.lines if line.startswith(f"problem: {path.name}")]
    complaints += [
        line for line in ran.lines if line.startswith(f"problem: {path.relative_to(tmp_path)}")
    ]
    assert complaints
    assert what in complaints[0]
    assert "; to do: " in complaints[0]
    assert "problem" in ran.errors


def copy_with_neighbours(path: Path, target: Path) -> Path:
    if path.parent.name.rpartition("-")[2].isdigit():
        return Path(shutil.copytree(path.parent, target / path.parent.name)) / path.name
    return Path(shutil.copy(path, target))


def test_a_torn_tail_is_reported_with_its_position_and_size(clean: Path, tmp_path: Path) -> None:
    log = copy_with_neighbours(clean / "codecs-0" / LOG_NAME, tmp_path)
    log.write_bytes(log.read_bytes()[:-100])
    ran = moldau("dump", "--json", tmp_path / "codecs-0")
    assert ran.status == 1
    found = [row for row in objects(ran) if row["type"] == "problem"]
    tail = next(row for row in found if row["file"].endswith(".log"))
    assert tail["position"] == 4019
    assert "torn tail: the last 563 bytes" in tail["what"]
    assert "truncates them" in tail["toDo"]


def test_a_check_of_a_whole_directory_prints_its_problems(clean: Path, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    shutil.copytree(clean, directory)
    log = directory / "idempotent-0" / "00000000000000000200.log"
    content = bytearray(log.read_bytes())
    content[500_000] ^= 1
    log.write_bytes(content)
    ran = moldau("dump", "--check", "data", cwd=tmp_path)
    assert ran.status == 1
    (problem,) = ran.lines
    assert problem.startswith("problem: data/idempotent-0/00000000000000000200.log: position")
    assert ran.errors == "1 problem found\n"
    (found,) = objects(moldau("dump", "--check", "--json", "data", cwd=tmp_path))
    assert found["type"] == "problem"


def test_a_check_of_a_whole_sound_directory_prints_nothing(clean: Path) -> None:
    ran = moldau("dump", "--check", clean)
    assert (ran.status, ran.output, ran.errors) == (0, "", "no problems found\n")


def test_the_reserve_is_known(clean: Path, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    shutil.copytree(clean, directory)
    (directory / "moldau-reserve").write_bytes(bytes(1000))
    ran = moldau("dump", directory)
    assert (ran.status, "moldau-reserve" in ran.output) == (0, False)
    found = objects(moldau("dump", "--json", directory / "moldau-reserve"))
    assert [row["type"] for row in found] == ["file", "fileEnd"]
    assert (found[0]["kind"], found[0]["size"]) == ("reserved disk space", 1000)
    plain = moldau("dump", "moldau-reserve", cwd=directory).lines
    told = "reserved disk space, 1000 bytes, nothing to read in it"
    assert plain == ["Dumping moldau-reserve", told]


def test_a_check_reports_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "garbage.txt").write_text("garbage")
    ran = moldau("dump", "--check", "garbage.txt", cwd=tmp_path)
    note = "note: garbage.txt: not a file that Kafka or Moldau writes; not read"
    assert (ran.status, ran.lines) == (0, [note])
    assert ran.errors == "no problems found in what was read\n"


def test_scram_keys_are_not_printed_by_accident(clean: Path) -> None:
    folder = clean / "__cluster_metadata-0"
    credential = "USER_SCRAM_CREDENTIAL_RECORD"
    hidden = [line for line in moldau("dump", "-r", folder).lines if credential in line]
    assert hidden
    assert all('"storedKey":"***"' in line for line in hidden)
    shown = moldau("dump", "-r", "--show-secrets", folder).lines
    assert not any('"storedKey":"***"' in line for line in shown)
