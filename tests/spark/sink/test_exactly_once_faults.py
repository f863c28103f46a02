"""Exactly-once into Moldau: drivers and brokers are killed, responses lost, checkpoints deleted;
each row is written once.
"""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from spark.copy_job import ALWAYS, FAULTY_BATCH, WAIT_S, run
from spark.copying import (
    KILLED,
    check_copied,
    finish,
    new_job,
    run_process,
    start_process,
)
from spark.copying_cases import *  # noqa: F403 - these are tests too
from spark.response_dropper import ResponseDropper
from support.waiting import wait_for

from moldau.testing import ProcessBroker, broker

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def own_broker() -> Iterator[ProcessBroker]:
    with broker(process=True) as node:
        assert isinstance(node, ProcessBroker)
        yield node


@pytest.fixture
def bootstrap(own_broker: ProcessBroker) -> str:
    return own_broker.bootstrap


@pytest.fixture
def dropping_bootstrap() -> Iterator[tuple[str, ResponseDropper]]:
    with ResponseDropper(FAULTY_BATCH) as proxy:
        listeners = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with broker(listeners, process=True) as node:
            proxy.serve(int(node.bootstrap.rpartition(":")[2]))
            yield proxy.address, proxy


def test_the_driver_is_killed_after_its_commit(
    session: Any, bootstrap: str, tmp_path: Path
) -> None:
    """Spark runs the batch again, and the sink recognises it."""
    job = new_job(bootstrap, tmp_path, fault="killed after the end")
    status, output = run_process(job)
    assert status == KILLED, output[-3000:]
    assert not (tmp_path / "checkpoint" / "commits" / str(FAULTY_BATCH)).exists()
    finish(session, job)
    check_copied(job)


@pytest.mark.parametrize("fault", ["zombie driver", "zombie task"])
def test_an_older_run_that_continues_is_fenced(
    session: Any, bootstrap: str, tmp_path: Path, fault: str
) -> None:
    job = new_job(bootstrap, tmp_path, fault=fault)
    zombie = start_process(job)
    try:
        wait_for_file(tmp_path / "reached", zombie)
        finish(session, job)
        check_copied(job)
        (tmp_path / "go").touch()
        _, output = zombie.communicate(timeout=WAIT_S)
        assert zombie.returncode != 0
        assert "another run of this job has taken over" in output
    finally:
        zombie.kill()
        zombie.communicate()
    check_copied(job)


def wait_for_file(path: Path, process: subprocess.Popen[str]) -> None:
    def is_there() -> bool:
        assert process.poll() is None, "the run ended before its fault"
        return path.exists()

    wait_for(is_there, path.name, WAIT_S)


def test_a_stateful_query_in_update_mode(session: Any, bootstrap: str, tmp_path: Path) -> None:
    job = new_job(bootstrap, tmp_path, fault="task fails", is_stateful=True)
    run(session, job)
    check_copied(job)


@pytest.mark.parametrize("fault", ["killed before the end", "killed after the end"])
def test_the_driver_of_a_stateful_query_is_killed(
    session: Any, bootstrap: str, tmp_path: Path, fault: str
) -> None:
    job = new_job(bootstrap, tmp_path, fault=fault, is_stateful=True)
    status, output = run_process(job)
    assert status == KILLED, output[-3000:]
    finish(session, job)
    check_copied(job)


@pytest.mark.parametrize("fault", ["killed after the end", "killed while tasks write"])
def test_the_broker_is_killed(session: Any, tmp_path: Path, fault: str) -> None:
    """The broker is the coordinator, which may not have written its markers, and the leader of the
    partitions.
    """
    with broker(process=True) as node:
        assert isinstance(node, ProcessBroker)
        job = new_job(node.bootstrap, tmp_path, fault=fault, victims=(node.pid,))
        again = threading.Thread(target=start_again, args=(node, psutil.Process(node.pid)))
        again.start()
        run(session, job)
        again.join()
        check_copied(job)


def start_again(node: ProcessBroker, process: psutil.Process) -> None:
    process.wait(WAIT_S)
    node.kill()
    node.start()


def test_after_a_deleted_checkpoint_a_query_resumes_from_its_group(
    session: Any, bootstrap: str, tmp_path: Path
) -> None:
    job = new_job(bootstrap, tmp_path, fault="task fails", fails_times=ALWAYS)
    with pytest.raises(Exception, match="a task fails"):
        run(session, job)
    shutil.rmtree(tmp_path / "checkpoint")
    finish(session, replace(job, starting="group"))
    check_copied(job)


def test_an_older_copy_of_a_checkpoint_is_refused(
    session: Any, bootstrap: str, tmp_path: Path
) -> None:
    job = new_job(bootstrap, tmp_path, fault="task fails", fails_times=ALWAYS)
    with pytest.raises(Exception, match="a task fails"):
        run(session, job)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    finish(session, job)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "older").rename(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="the checkpoint is an older copy"):
        finish(session, job)
    check_copied(job)
