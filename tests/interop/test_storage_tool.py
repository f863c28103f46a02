"""`moldau storage` writes the same files as Apache's StorageTool, and refuses the same input."""

import ipaddress
import re
import subprocess
import sys
from pathlib import Path

import pytest
from interop.apache import ApacheOracle, ToolRun
from interop.dump import dump

from moldau.core.metadata.snapshot_file import decode_snapshot
from moldau.core.quorum.voters import VoterEndpoint, VoterSet
from moldau.protocol.records.control_records import ControlType
from moldau.storage.directory.meta_properties import read_meta_properties
from moldau.storage.disk.filesystem import DiskFileSystem

pytestmark = pytest.mark.interop

TOOL = "kafka.tools.StorageTool"
CLUSTER_ID = "MoldauInteropTest0000Q"
FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
THREE = (
    "1@localhost:9093:JEXY6aqzQY-32P5TStzaFg,2@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A,"
    "3@example.com:9095:07R5amHmR32VDA6jHkGbTA"
)
UNSTABLE = {"unstable_feature_versions_enable": "true"}
SCRAM_256 = "SCRAM-SHA-256=[name=alice,salt=N3E=,iterations=5000,password=alice-secret]"
SCRAM_512 = 'SCRAM-SHA-512=[name=bob,iterations=8192,salt="N3E=",saltedpassword="YCE="]'


def properties(folder: Path, kind: str, **changes: str | None) -> Path:
    settings: dict[str, str | None] = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": f"{folder}/{kind}-a,{folder}/{kind}-b",
    }
    settings |= {name.replace("_", "."): value for name, value in changes.items()}
    lines = [f"{name}={value}\n" for name, value in settings.items() if value is not None]
    path = folder / f"{kind}.properties"
    path.write_text("".join(lines))
    return path


class Formats:
    """The same command by both tools, each on directories of its own."""

    def __init__(self, apache: ApacheOracle, folder: Path) -> None:
        self.apache = apache
        self.folder = folder

    def run(self, *options: str, **changes: str | None) -> tuple[ToolRun, ToolRun]:
        arguments = ["format", "-t", CLUSTER_ID, *options]
        theirs = properties(self.folder, "apache", **changes)
        ours = properties(self.folder, "moldau", **changes)
        command = [sys.executable, "-m", "moldau", "storage", *arguments, "-c", str(ours)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return (
            self.apache.run_tool(TOOL, *arguments, "-c", str(theirs)),
            ToolRun(done.returncode, done.stdout, done.stderr),
        )

    def files(self, kind: str) -> list[str]:
        """Files in both directories, without lock files, which each creates at another time."""
        return sorted(
            str(path.relative_to(self.folder)).removeprefix(f"{kind}-")
            for path in self.folder.glob(f"{kind}-*/**/*")
            if path.is_file() and path.name != ".lock"
        )


@pytest.fixture
def formats(apache: ApacheOracle, tmp_path: Path) -> Formats:
    return Formats(apache, tmp_path)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (["--standalone"], {}),
        (["-s", "-S", SCRAM_256, "--add-scram", SCRAM_512], {}),
        (["--standalone", "--release-version", "3.9"], {}),
        (["--standalone", "--release-version", "4.3"], {}),
        (["--standalone", "--release-version", "4.3.1"], {}),
        (["--standalone", "--release-version", "4.2-IV1"], {}),
        (["--standalone", "--release-version", "3.3-IV3"], {}),
        (["--standalone", "--feature", "metadata.version=29"], {}),
        (["--standalone", "--feature", "metadata.version=7"], {}),
        (["--standalone", "-r", "4.1", "-f", "group.version=0"], {}),
        (["--standalone", "-f", "metadata.version=31"], UNSTABLE),
        (["--standalone", "-r", "4.4-IV0"], UNSTABLE),
        (["--standalone", "-f", "transaction.version=0", "-f", "group.version=0"], {}),
        (["--standalone", "-r", "4.0", "-f", "transaction.version=1"], {}),
        (["--standalone", "--feature", "share.version=0", "--feature", "kraft.version=1"], {}),
        (["--no-initial-controllers"], {}),
        (["--initial-controllers", THREE], {}),
        (
            ["-I", THREE],
            {"node_id": "9", "process_roles": "controller", "listeners": "CONTROLLER://:9093"},
        ),
        (
            [],
            {
                "controller_quorum_voters": "1@127.0.0.1:9093",
                "controller_quorum_bootstrap_servers": None,
            },
        ),
        ([], {"process_roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}),
    ],
    ids=str,
)
def test_both_write_the_same_files(
    formats: Formats, options: list[str], changes: dict[str, str | None]
) -> None:
    theirs, ours = formats.run(*options, **changes)
    assert theirs.status == 0, theirs
    assert ours.status == 0, ours
    assert formats.files("moldau") == formats.files("apache")
    for name in formats.files("apache"):
        first, second = formats.folder / f"apache-{name}", formats.folder / f"moldau-{name}"
        if first.name == "meta.properties":
            _compare_meta(first, second)
        else:
            _compare_snapshots(first, second)
            _compare_dumps(formats.apache, first, second)
    printed = re.compile(r"Formatting (.*) /\S+ with (metadata\.version \S+)\.")
    assert sorted(printed.findall(ours.output)) == sorted(printed.findall(theirs.output))


def _compare_meta(apache: Path, moldau: Path) -> None:
    disk = DiskFileSystem()
    first, second = (read_meta_properties(disk, path) for path in (apache, moldau))
    assert (first.version, first.cluster_id, first.node_id) == (
        second.version, second.cluster_id, second.node_id,
    )  # fmt: skip
    assert second.directory_id is not None


def _compare_snapshots(apache: Path, moldau: Path) -> None:
    first, second = (decode_snapshot(path.read_bytes()) for path in (apache, moldau))
    assert first.records == second.records
    assert first.head.epoch == second.head.epoch
    for (kind, their_value), (our_kind, our_value) in zip(
        first.head.control_values, second.head.control_values, strict=True
    ):
        assert kind is our_kind
        if kind is ControlType.KRAFT_VOTERS:
            theirs, ours = VoterSet.decode(their_value), VoterSet.decode(our_value)
            assert theirs.by_id.keys() == ours.by_id.keys()
            for node_id, voter in theirs.by_id.items():
                assert plain(voter.endpoints) == plain(ours.by_id[node_id].endpoints)
                assert voter.kraft_versions == ours.by_id[node_id].kraft_versions
        else:
            assert their_value == our_value


def plain(endpoints: tuple[VoterEndpoint, ...]) -> list[tuple[str, str, int]]:
    """Java writes IPv6 addresses in full length."""
    shown = []
    for listener, host, port in endpoints:
        is_address = ":" in host
        address = ipaddress.ip_address(host).exploded if is_address else host
        shown.append((listener, address, port))
    return shown


def _compare_dumps(apache: ApacheOracle, first: Path, second: Path) -> None:
    """Compares without times, checksums and random ids."""
    changing = re.compile(
        r"(CreateTime|crc|size|position|lastContainedLogTimestamp|voterDirectoryId|host)"
        r'(: ?|=|":"?)[^ ,}]+|^Dumping .*'
    )
    dumps = [
        dump(apache, path, options=["--cluster-metadata-decoder", "--skip-record-metadata"])
        for path in (first, second)
    ]
    lines = [[changing.sub("", line) for line in each.lines] for each in dumps]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([], {}),
        (["--standalone", "--initial-controllers", THREE], {}),
        (["--standalone"], {"controller_quorum_voters": "1@127.0.0.1:9093"}),
        (["--standalone"], {"process_roles": "broker", "listeners": "PLAINTEXT://:9092"}),
        (["--standalone", "--release-version", "9.9"], {}),
        (["--standalone", "--release-version", "4.4"], UNSTABLE),
        (["--standalone", "--release-version", "3.2"], {}),
        (["--standalone", "--release-version", "nonsense"], {}),
        (["--standalone", "--release-version", "4.4-IV0"], {}),
        (["--standalone", "--feature", "metadata.version=31"], {}),
        (["--standalone", "--feature", "metadata.version=99"], {}),
        (["--standalone", "--feature", "metadata.version=99"], UNSTABLE),
        (["--standalone", "--feature", "metadata.version=6"], {}),
        (["--standalone", "--feature", "metadata.version=4.3"], {}),
        (["--standalone", "--feature", "metadata.version"], {}),
        (["--standalone", "--feature", "group.version=-1"], {}),
        (["--standalone", "-r", "3.9", "-f", "eligible.leader.replicas.version=1"], {}),
        (["--standalone", "--release-version", "4.4"], {}),
        (["--standalone", "--feature", "colour.version=1"], {}),
        (["--standalone", "--feature", "group.version=9"], {}),
        (["--standalone", "--feature", "kraft.version=0"], {}),
        (["--standalone", "-r", "4.3", "-f", "metadata.version=30"], {}),
        (["--standalone", "-r", "3.4", "-S", SCRAM_256], {}),
        (["--standalone", "-S", "SCRAM-SHA-256=[name=a]"], {}),
        (["--standalone", "-S", "SCRAM-SHA-1=[name=a,password=b]"], {}),
        (["--initial-controllers", "1@localhost:9093"], {}),
        (["--initial-controllers", "1@localhost:9093:not-an-id"], {}),
    ],
    ids=str,
)
def test_both_refuse_the_same(
    formats: Formats, options: list[str], changes: dict[str, str | None]
) -> None:
    theirs, ours = formats.run(*options, **changes)
    assert theirs.status != 0, theirs
    assert ours.status != 0, ours
    assert formats.files("moldau") == []
    assert len(ours.errors.strip().splitlines()) == 1, ours.errors


def test_both_recognize_a_formatted_directory(formats: Formats) -> None:
    assert [run.status for run in formats.run("--standalone")] == [0, 0]
    assert [run.status for run in formats.run("--standalone")] == [1, 1]
    runs = formats.run("--standalone", "--ignore-formatted")
    assert [run.status for run in runs] == [0, 0]
    for run in runs:
        assert "All of the log directories are already formatted." in run.output
    # Another directory is formatted in addition to the others.
    for kind in ("apache", "moldau"):
        path = formats.folder / f"{kind}.properties"
        text = path.read_text()
        path.write_text(re.sub(r"(log\.dirs=.*)", rf"\1,{formats.folder}/{kind}-c", text))
    arguments = ["format", "-t", CLUSTER_ID, "-g", "--standalone"]
    theirs = formats.apache.run_tool(
        TOOL, *arguments, "-c", str(formats.folder / "apache.properties")
    )
    ours = _moldau(*arguments, "-c", str(formats.folder / "moldau.properties"))
    assert (theirs.status, ours.status) == (0, 0), (theirs, ours)
    assert formats.files("moldau") == formats.files("apache")


def test_both_report_the_same_about_directories(formats: Formats) -> None:
    formats.run("--standalone")
    for kind in ("apache", "moldau"):
        config = str(formats.folder / f"{kind}.properties")
        theirs = formats.apache.run_tool(TOOL, "info", "-c", config)
        ours = _moldau("info", "-c", config)
        assert (theirs.status, ours.status) == (0, 0)
        assert theirs.output == ours.output
    (formats.folder / "moldau-b" / "meta.properties").unlink()
    config = str(formats.folder / "moldau.properties")
    theirs = formats.apache.run_tool(TOOL, "info", "-c", config)
    ours = _moldau("info", "-c", config)
    assert (theirs.status, ours.status) == (1, 1)
    assert ours.output.replace(" is not formatted\n", " is not formatted.\n") == theirs.output


def _moldau(*arguments: str) -> ToolRun:
    command = [sys.executable, "-m", "moldau", "storage", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ToolRun(done.returncode, done.stdout, done.stderr)
