"""Source, sinks and exactly-once in a session of Spark Connect."""

from dataclasses import replace
from pathlib import Path

import pytest
from spark.copy_job import CONNECT
from spark.copying import (
    PARTITIONS,
    check_copied,
    committed_values,
    new_job,
    run_process,
)

from moldau import Admin
from moldau.admin import NewTopic
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark


def test_jobs_through_a_server(node: ThreadBroker, tmp_path: Path) -> None:
    """A task fails after it has written; another run finds nothing to do, and copies the copy."""
    job = new_job(node.bootstrap, tmp_path, master=CONNECT, fault="task fails")
    status, output = run_process(job)
    assert status == 0, output[-3000:]
    assert (tmp_path / "task fails.0").exists()
    check_copied(job)

    copies = [f"{job.target}-{kind}" for kind in ("batch", "stream")]
    with Admin(node.bootstrap) as admin:
        admin.create_topics([NewTopic(name=one, partitions=PARTITIONS) for one in copies])
    status, output = run_process(replace(job, fault=""))
    assert status == 0, output[-3000:]
    check_copied(job)
    copied = sorted(committed_values(job.bootstrap, job.target))
    for copy in copies:
        assert sorted(committed_values(job.bootstrap, copy)) == copied
