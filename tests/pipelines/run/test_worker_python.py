"""Workers on this machine use Spark's installed files, which are compiled, not its archive."""

import subprocess
from pathlib import Path

import pytest

from moldau.pipelines.run.worker_python import worker_python


def test_the_archive_of_spark_is_removed_from_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with a space"))
    program = worker_python()
    assert worker_python() == program
    spark = f"{tmp_path}/python/lib"
    entries = (f"{spark}/pyspark.zip", f"{spark}/py4j-0.10.9.9-src.zip", f"{tmp_path}/own files")
    code = "import os, sys; print(os.environ['PYTHONPATH']); print(sys.argv[1:])"
    done = subprocess.run(
        [program, "-c", code, "a b", "*"],
        env={"PYTHONPATH": ":".join(entries)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{tmp_path}/own files\n['a b', '*']\n"


def test_without_a_writable_cache_the_python_itself_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert worker_python() == sys.executable
