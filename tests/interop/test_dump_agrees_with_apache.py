"""`moldau dump` in a pipe prints what Apache's DumpLogSegments prints, line by line."""

from pathlib import Path

import pytest
from cli.command import moldau
from interop.apache import ApacheOracle
from interop.dump import TOOL, faults
from storage.samples import unpack

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("clean"))


@pytest.mark.parametrize(
    ("topic", "option"),
    [
        ("codecs", "--print-data-log"),
        ("append-time", "--print-data-log"),
        ("compacted", "--print-data-log"),
        ("txns", "--print-data-log"),
        ("trimmed", "--print-data-log"),
        ("idempotent", "--print-data-log"),
        ("__consumer_offsets", "--offsets-decoder"),
        ("__transaction_state", "--transaction-log-decoder"),
        ("__share_group_state", "--share-group-state-decoder"),
        ("__cluster_metadata", "--cluster-metadata-decoder"),
    ],
)
def test_the_lines_are_the_same(apache: ApacheOracle, clean: Path, topic: str, option: str) -> None:
    suffixes = {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"}
    files = [
        path
        for folder in sorted(clean.glob(f"{topic}-[0-9]"))
        for path in sorted(folder.iterdir())
        if path.suffix in suffixes
    ]
    theirs = apache.run_tool(TOOL, option, "--files", ",".join(map(str, files)))
    assert theirs.status == 0
    ours = moldau("dump", "--records", "--show-secrets", *files)
    assert ours.status == 0
    assert ours.lines == theirs.output.splitlines()


def test_apache_finds_no_fault_in_the_demos_log(apache: ApacheOracle, tmp_path: Path) -> None:
    assert moldau("demo", "--commands", "--once", "--port", "0", "--dir", tmp_path).status == 0
    assert faults(apache, tmp_path / "node" / "river-0") == []
