"""The demo keeps what it says: it writes a real log, survives its own crash, and cleans up."""

from pathlib import Path

from cli.command import moldau


def test_the_demo_tells_its_story_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ran = moldau("demo", TMPDIR=str(tmp_path), COLUMNS="120")
    assert (ran.status, ran.errors) == (0, "")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"   {codec}" in ran.output
    assert "read_uncommitted sees 210 records" in ran.output
    assert "read_committed sees 205" in ran.output
    assert "torn tail: the last 100 bytes" in ran.output
    assert "log end before the crash: 212, after the recovery: 212" in ran.output
    assert "stopped cleanly" in ran.output
    assert list(tmp_path.iterdir()) == []


def test_a_kept_demo_is_a_healthy_log_directory(tmp_path: Path) -> None:
    target = tmp_path / "demo"
    ran = moldau("demo", "--directory", target)
    assert ran.status == 0
    assert str(target) in ran.output
    check = moldau("dump", "--check", target)
    assert (check.status, check.errors) == (0, "no problems found\n")
    assert len(list((target / "river-0").glob("*.log"))) >= 3


def test_a_kept_temporary_directory_is_named(tmp_path: Path) -> None:
    ran = moldau("demo", "--keep", TMPDIR=str(tmp_path))
    assert ran.status == 0
    (kept,) = tmp_path.iterdir()
    assert str(kept) in ran.output.replace("\n", "")


def test_the_demo_runs_on_the_python_twins() -> None:
    ran = moldau("demo", MOLDAU_PURE_PYTHON="1")
    assert (ran.status, ran.errors) == (0, "")


def test_the_demo_does_not_write_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    ran = moldau("demo", "--directory", tmp_path)
    assert ran.status == 2
    assert len(ran.errors.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
