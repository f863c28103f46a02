"""Source, sink and exactly-once in a session of Spark Connect."""

from dataclasses import replace
from pathlib import Path

import pytest
from spark_jobs.copy_job import CONNECT
from spark_jobs.copying import check_copied, new_job, run_process

from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark


def test_exactly_once_through_a_server(node: ThreadBroker, tmp_path: Path) -> None:
    """A task fails after it has written; another run finds nothing to do."""
    job = new_job(node.bootstrap, tmp_path, master=CONNECT, fault="task fails")
    status, said = run_process(job)
    assert status == 0, said[-3000:]
    assert (tmp_path / "task fails.0").exists()
    check_copied(job)
    status, said = run_process(replace(job, fault=""))
    assert status == 0, said[-3000:]
    check_copied(job)
