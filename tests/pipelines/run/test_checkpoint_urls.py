"""Checkpoints on Hadoop's file systems: their metadata is stored with them."""

from pathlib import Path
from typing import Any

import pytest
from pipelines.at_work import make_topics, send, values_of
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau.pipelines.compile.topics import ensure_topics
from moldau.pipelines.run.checkpoint_metadata import CheckpointMetadata
from moldau.pipelines.run.run_folder import RunFolder
from moldau.pipelines.run.runner import Running
from moldau.protocol.errors import MoldauError
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

PIPELINE = """\
name: far
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  far: {{topic: far, schema: n BIGINT, start: earliest}}
steps:
  sums:
    sql: SELECT n % 2 AS rest, sum(n) AS total FROM far GROUP BY n % 2
    mode: upsert
    into: {{topic: far.sums, key: rest}}
"""


def test_a_run_resumes_from_a_url(session: Any, node: ThreadBroker, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    # A different file system to its users, although its files are on this disk.
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.state.link./disk", f"file://{tmp_path}/disk")
    make_topics(node, "far")
    path = written(tmp_path, "far.yaml", PIPELINE.format(bootstrap=node.bootstrap))
    pipeline = mp.load(path)
    folder = RunFolder(tmp_path / "here", "viewfs://state/disk/far/")
    ensure_topics(pipeline)
    for first in (0, 10):
        send(node, "far", [{"n": number} for number in range(first, first + 10)])
        with folder.held():
            Running(session, pipeline, folder).run(once=True)
    sums = {row["rest"]: row["total"] for row in values_of(session, node, "far.sums")}
    assert sums == {0: sum(range(0, 20, 2)), 1: sum(range(1, 20, 2))}

    kept = tmp_path / "disk" / "far"
    assert {one.name for one in (kept / "moldau").glob("*.json")} == {
        "initial.json",
        "plans.json",
    }
    assert (kept / "sums" / "commits").is_dir()
    assert [one.name for one in (tmp_path / "here").iterdir()] == ["moldau"]
    assert folder.status()["name"] == "far"

    notes = CheckpointMetadata(session, folder.checkpoint)
    assert notes.forget()
    assert not kept.exists()
    assert not notes.forget()


def test_an_unavailable_file_system_is_an_error(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    path = written(tmp_path, "far.yaml", PIPELINE.format(bootstrap=node.bootstrap))
    folder = RunFolder(tmp_path / "here", "nowhere://host/far")
    running = Running(session, mp.load(path), folder)
    with pytest.raises(
        MoldauError, match=r"checkpoint nowhere://host/far cannot be used: .*"
    ) as told:
        running.run(once=True)
    assert 'No FileSystem for scheme "nowhere"' in str(told.value)
    assert "\n" not in str(told.value)
