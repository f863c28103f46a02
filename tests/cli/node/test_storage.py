"""`moldau storage` formats and inspects directories; errors are one line."""

import json
from pathlib import Path

import pytest
from cli.command import Ran, moldau, moldau_here

from moldau.core.metadata.snapshot_file import decode_snapshot
from moldau.core.quorum.voters import VoterSet
from moldau.protocol.log_records import UserScramCredentialRecord
from moldau.protocol.records.control_records import ControlType
from moldau.storage.directory.meta_properties import read_meta_properties
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.types import parse_uuid

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
SETTINGS = """
process.roles=broker,controller
node.id=7
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
"""


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(f"{SETTINGS}log.dirs={tmp_path}/one,{tmp_path}/two/deep\n")
    return path


def formatted(properties: Path, *options: str) -> Ran:
    return moldau_here("storage", "format", "-t", CLUSTER, "-c", properties, *options)


def test_directories_are_inspected_without_a_configuration(
    properties: Path, tmp_path: Path
) -> None:
    formatted(properties, "--standalone")
    one, two = tmp_path / "one", tmp_path / "two" / "deep"
    found = json.loads(moldau_here("storage", "info", "--json", "--dir", one, "-d", two).output)
    assert found["problems"] == []
    assert [each["path"] for each in found["directories"]] == [str(one), str(two)]
    alone = moldau_here("storage", "info", "--dir", tmp_path)
    assert (alone.status, f"  {tmp_path} is not formatted" in alone.lines) == (1, True)
    for wrong in ((), ("-c", properties, "--dir", one)):
        ran = moldau_here("storage", "info", *(wrong or ("--json",)))
        assert (ran.status, "give either --config or --dir." in ran.errors) == (2, True)


def test_a_formatted_node_is_described(properties: Path, tmp_path: Path) -> None:
    before = moldau_here("storage", "info", "-c", properties)
    assert before.status == 1
    assert before.lines == [
        "Found problems:",
        f"  {tmp_path}/one does not exist",
        f"  {tmp_path}/two/deep does not exist",
        "",
    ]
    run = formatted(properties, "--standalone")
    assert (run.status, run.errors) == (0, "")
    level = "with metadata.version 4.3-IV0."
    assert run.lines == [
        f"Formatting dynamic metadata voter directory {tmp_path}/one {level}",
        f"Formatting data directory {tmp_path}/two/deep {level}",
    ]
    after = moldau_here("storage", "info", "-c", properties)
    assert after.status == 0
    assert "Found log directories:" in after.lines
    found = json.loads(moldau_here("storage", "info", "--json", "-c", properties).output)
    assert found["problems"] == []
    assert [(each["cluster.id"], each["node.id"]) for each in found["directories"]] == [
        (CLUSTER, 7),
        (CLUSTER, 7),
    ]


def test_the_voter_is_this_nodes_directory(properties: Path, tmp_path: Path) -> None:
    formatted(properties, "--standalone")
    meta = read_meta_properties(DiskFileSystem(), tmp_path / "one" / "meta.properties")
    head = decode_snapshot((tmp_path / "one" / FIRST_SNAPSHOT).read_bytes()).head
    voters = VoterSet.decode(dict(head.control_values)[ControlType.KRAFT_VOTERS])
    assert voters.by_id[7].key.directory_id == meta.directory_id
    assert voters.by_id[7].endpoints == (("CONTROLLER", "127.0.0.1", 9093),)
    other = read_meta_properties(DiskFileSystem(), tmp_path / "two" / "deep" / "meta.properties")
    assert other.directory_id not in {None, meta.directory_id}


def test_the_cluster_starts_with_the_given_users_and_features(
    properties: Path, tmp_path: Path
) -> None:
    user = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
    run = formatted(properties, "-s", "-S", user, "-r", "4.2", "-f", "share.version=0")
    assert run.status == 0
    assert "alice-secret" not in run.output
    for folder in ("one", "two/deep"):
        content = (tmp_path / folder / "bootstrap.checkpoint").read_bytes()
        records = decode_snapshot(content).records
        assert [getattr(record, "name", "") for record in records] == [
            "metadata.version",
            "eligible.leader.replicas.version",
            "group.version",
            "streams.version",
            "transaction.version",
            "alice",
        ]
        assert isinstance(records[-1], UserScramCredentialRecord)
        assert b"alice-secret" not in content


def test_a_metadata_directory_of_its_own_gets_the_voters(properties: Path, tmp_path: Path) -> None:
    with properties.open("a") as file:
        file.write(f"metadata.log.dir={tmp_path}/meta\n")
    run = formatted(properties, "--standalone")
    assert run.status == 0
    assert (tmp_path / "meta" / FIRST_SNAPSHOT).exists()
    assert not (tmp_path / "one" / "__cluster_metadata-0").exists()


def test_formatting_again_changes_nothing(properties: Path, tmp_path: Path) -> None:
    formatted(properties, "--standalone")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = formatted(properties, "--standalone")
    assert again.status == 1
    assert again.errors == (
        f"moldau: {tmp_path}/one is already formatted; --ignore-formatted formats the others\n"
    )
    ignored = formatted(properties, "--standalone", "--ignore-formatted")
    assert ignored.status == 0
    assert ignored.lines == ["All of the log directories are already formatted."]
    assert files == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("cluster.id=other", "belongs to cluster other, not"),
        ("node.id=8", "belongs to node 8, not 7"),
        ("version=9", "unknown version"),
    ],
)
def test_a_foreign_or_broken_directory_is_left_alone(
    properties: Path, tmp_path: Path, change: str, complaint: str
) -> None:
    meta = {"version": "1", "cluster.id": CLUSTER, "node.id": "7"}
    name, _, value = change.partition("=")
    meta[name] = value
    (tmp_path / "one").mkdir()
    lines = "".join(f"{key}={value}\n" for key, value in meta.items())
    (tmp_path / "one" / "meta.properties").write_text(lines)
    run = formatted(properties, "--standalone", "--ignore-formatted")
    assert run.status == 1
    assert complaint in run.errors
    assert len(run.errors.splitlines()) == 1
    assert not (tmp_path / "two").exists()


def test_a_metadata_log_without_an_owner_is_not_formatted_over(
    properties: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "one" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(b"")
    run = formatted(properties, "--standalone")
    assert run.status == 1
    assert "holds a metadata log" in run.errors


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "give --standalone, --initial-controllers or --no-initial-controllers"),
        (["--standalone", "--no-initial-controllers"], "only one of"),
        (["-I", "7@localhost"], "is not id@host:port:directory-id"),
        (["-I", ","], "is empty"),
        (["-I", f"1@a:1:{CLUSTER},1@b:2:{CLUSTER}"], "names a node twice"),
        (["-I", "7@localhost:9093:short"], "not a Kafka UUID"),
        (["-s", "-r", "5.1"], "unknown release version '5.1'"),
        (["-s", "-f", "x"], "'x' is not FEATURE=LEVEL"),
        (["-s", "-S", "x"], "MECHANISM="),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(
    properties: Path, tmp_path: Path, options: list[str], complaint: str
) -> None:
    run = formatted(properties, *options)
    assert run.status == 1
    assert complaint in run.errors
    assert len(run.errors.splitlines()) == 1
    assert not (tmp_path / "one").exists()


def test_a_missing_or_invalid_file_is_an_error_of_one_line(tmp_path: Path) -> None:
    missing = formatted(tmp_path / "none.properties", "-s")
    assert (missing.status, len(missing.errors.splitlines())) == (1, 1)
    path = tmp_path / "server.properties"
    path.write_text(SETTINGS + "num.partitions=red\n")
    wrong = formatted(path, "-s")
    assert wrong.status == 1
    assert "num.partitions" in wrong.errors


def test_unknown_settings_are_reported_and_ignored_unless_strict(
    properties: Path, tmp_path: Path
) -> None:
    with properties.open("a") as file:
        file.write("colour=red\nlog.unclean.leader.election.enable=true\n")
    meant = "unclean.leader.election.enable"
    complaints = [
        "colour: unknown setting",
        f"log.{meant}: unknown setting; did you mean {meant}?",
    ]
    refused = formatted(properties, "-s", "--strict")
    assert (refused.status, refused.errors) == (
        1,
        f"moldau: INVALID_CONFIG: {'; '.join(complaints)}\n",
    )
    assert not (tmp_path / "one").exists()
    run = formatted(properties, "-s")
    assert run.status == 0
    assert run.errors.splitlines() == [f"moldau: warning: {each}" for each in complaints]
    assert (tmp_path / "one" / "meta.properties").exists()


def test_a_file_in_place_of_a_directory_is_an_error_of_one_line(
    properties: Path, tmp_path: Path
) -> None:
    (tmp_path / "one").write_text("")
    run = formatted(properties, "-s")
    assert run.errors == f"moldau: {tmp_path}/one is not a directory\n"


def test_random_uuids_differ() -> None:
    found = {moldau_here("storage", "random-uuid").output.strip() for _ in range(20)}
    assert len(found) == 20
    for text in found:
        parse_uuid(text)
        assert not text.startswith("-")


def test_it_runs_as_a_command(properties: Path) -> None:
    shown = moldau("storage", "--help")
    assert shown.status == 0
    for name in ("format", "info", "random-uuid"):
        assert name in shown.output
    assert moldau("storage", "format", "-c", properties).status == 2
