"""Faults of an exactly-once job that it must survive with any Kafka: each row is written once. The
fixture `bootstrap` of the test module has the broker's address.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spark.copy_job import ALWAYS, run
from spark.copying import KILLED, check_copied, finish, new_job, run_process


def test_without_a_fault(session: Any, bootstrap: str, tmp_path: Path) -> None:
    job = new_job(bootstrap, tmp_path)
    run(session, job)
    check_copied(job)
    # There are no new rows, and none is written again.
    run(session, job)
    check_copied(job)


def test_a_task_fails_after_it_has_written(session: Any, bootstrap: str, tmp_path: Path) -> None:
    job = new_job(bootstrap, tmp_path, fault="task fails")
    run(session, job)
    assert (tmp_path / "task fails.0").exists()
    check_copied(job)


def test_every_attempt_fails_and_the_query_is_started_again(
    session: Any, bootstrap: str, tmp_path: Path
) -> None:
    job = new_job(bootstrap, tmp_path, fault="task fails", fails_times=ALWAYS)
    with pytest.raises(Exception, match="a task fails after it has written"):
        run(session, job)
    finish(session, job)
    check_copied(job)


@pytest.mark.parametrize("fault", ["killed while tasks write", "killed before the end"])
def test_the_driver_is_killed(session: Any, bootstrap: str, tmp_path: Path, fault: str) -> None:
    job = new_job(bootstrap, tmp_path, fault=fault)
    status, output = run_process(job)
    assert status == KILLED, output[-3000:]
    finish(session, job)
    check_copied(job)


def test_the_commit_succeeds_and_its_response_is_lost(
    session: Any, dropping_bootstrap: tuple[str, Any], tmp_path: Path
) -> None:
    bootstrap, proxy = dropping_bootstrap
    job = new_job(bootstrap, tmp_path)
    run(session, replace(job))
    assert proxy.has_dropped
    check_copied(job)
