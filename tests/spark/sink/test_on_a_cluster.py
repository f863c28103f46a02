"""On a real standalone cluster of Spark: workers are killed in the middle of batches, and each row
is written once.
"""

import json
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from spark.copying import check_copied, committed_values, new_job, run_process
from support import worker_killing
from support.spark_cluster import SMALL, WAIT_S, StandaloneCluster, environment
from support.waiting import wait_for

from moldau import Admin, Producer
from moldau.admin import NewTopic
from moldau.pipelines.run.run_folder import RunFolder
from moldau.testing import ProcessBroker, broker

pytestmark = pytest.mark.spark

ROWS = 4_000
BATCH = 1_000
PIPELINE = """\
import moldau.pipelines as mp
from worker_killing import KillOnce

settings = mp.pipeline("clustered", settings={{"bootstrap.servers": "{bootstrap}"}})
numbers = mp.topic(
    "numbers", format=mp.json("n BIGINT"), start="earliest", max_offsets_per_trigger={batch}
)


@mp.flow(into=mp.topic("copied", key="n"))
def copied(numbers):
    return numbers.mapInArrow(KillOnce("{folder}/topics", 1500), "n BIGINT")


@mp.flow(into=mp.table("lake"))
def lake(numbers):
    return numbers.mapInArrow(KillOnce("{folder}/table", 2500), "n BIGINT")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def node() -> Iterator[ProcessBroker]:
    with broker(process=True) as running:
        assert isinstance(running, ProcessBroker)
        yield running


def small(without: str = "") -> list[str]:
    given = [f"{name}={value}" for name, value in SMALL.items() if name != without]
    return [word for one in given for word in ("--conf", one)]


def moldau(*words: str) -> list[str]:
    return [sys.executable, "-m", "moldau", "pipeline", *words]


def error_line_of(*words: str, at: Path) -> str:
    done = subprocess.run(
        moldau(*words),
        env=environment(),
        cwd=at,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S * 2,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("moldau: ")]
    return line


def packed(folder: Path, python: str) -> Path:
    """A minimal environment for tasks."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    script.chmod(0o755)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(script, "bin/python")
    return archive


def test_a_worker_is_killed_while_tasks_write(
    cluster: StandaloneCluster, node: ProcessBroker, tmp_path: Path
) -> None:
    cluster.have_workers(2)
    job = new_job(node.bootstrap, tmp_path, fault="worker killed", master=cluster.url)
    status, output = run_process(job)
    assert status == 0, output[-3000:]
    assert (tmp_path / "worker killed.0").exists()
    assert any(one.poll() is not None for one in cluster.workers)
    check_copied(job)


@pytest.mark.slow
def test_a_pipeline_loses_workers_and_is_stopped(
    cluster: StandaloneCluster, node: ProcessBroker, tmp_path: Path
) -> None:
    """One worker dies while it writes a transaction's rows, one while it writes a table's."""
    cluster.have_workers(2)
    with Admin(node.bootstrap) as admin:
        admin.create_topics([NewTopic(name=one, partitions=4) for one in ("numbers", "copied")])
    with Producer(node.bootstrap) as producer:
        for number in range(ROWS):
            producer.send("numbers", json.dumps({"n": number}).encode(), partition=number % 4)
    file = tmp_path / "clustered.py"
    text = PIPELINE.format(bootstrap=node.bootstrap, folder=tmp_path, batch=BATCH)
    file.write_text(text)
    helper = shutil.copy(worker_killing.__file__, tmp_path)
    command = moldau(
        "run", str(file), "--master", cluster.url, "--py-files", str(helper),
        "--env", str(packed(tmp_path, sys.executable)), *small(),
    )  # fmt: skip
    variables = environment()
    del variables["PYSPARK_PYTHON"]
    folder = RunFolder(tmp_path / ".moldau" / "clustered")
    errors = tmp_path / "errors"
    with errors.open("wb") as out:
        run = subprocess.Popen(command, env=variables, stdout=out, stderr=subprocess.STDOUT)
    try:

        def is_done() -> bool:
            assert run.poll() is None, errors.read_text()[-3000:]
            cluster.have_workers(2)
            queries = folder.status().get("queries", [])
            # It has read everything, and reports that after the last batch.
            return any(
                one["lag"] == 0 and (one["batch"] or 0) >= ROWS // BATCH - 1 for one in queries
            )

        wait_for(is_done, "all batches", WAIT_S * 2)
        done = subprocess.run(moldau("stop", str(file)), capture_output=True, text=True, check=True)
        assert "stops after its current batch" in done.stdout
        assert run.wait(WAIT_S) == 0, errors.read_text()[-3000:]
    finally:
        run.kill()
        run.wait()
    assert (tmp_path / "topics").exists()
    assert (tmp_path / "table").exists()
    assert "stopped" in errors.read_text()
    assert not folder.is_running

    everything = list(range(ROWS))
    copied = [json.loads(one)["n"] for one in committed_values(node.bootstrap, "copied")]
    assert sorted(copied) == everything
    assert sorted(ds.dataset(tmp_path / "lake").to_table()["n"].to_pylist()) == everything
    with Admin(node.bootstrap) as admin:
        states = Counter(one.state for one in admin.list_transactions())
    assert "Ongoing" not in states, states


def test_state_is_cut_into_as_many_pieces_as_tasks_run_at_once(
    cluster: StandaloneCluster, node: ProcessBroker, tmp_path: Path
) -> None:
    """And into as many as before, if the size of the cluster or the setting has changed."""
    cluster.have_workers(2)
    with Admin(node.bootstrap) as admin:
        admin.create_topics(["fitted"])
    file = tmp_path / "fitted.yaml"
    file.write_text(
        f"settings: {{bootstrap.servers: '{node.bootstrap}'}}\n"
        "sources: {fitted: {topic: fitted, schema: n BIGINT, start: earliest}}\n"
        "steps: {counts: {sql: 'SELECT n, count(*) c FROM fitted GROUP BY n', mode: upsert,\n"
        "        into: {topic: fitted.counts, key: n}}}\n"
    )
    query = tmp_path / ".moldau" / "fitted" / "counts"
    given = small(without="spark.sql.shuffle.partitions")
    for number, wish in enumerate(([], ["--conf", "spark.sql.shuffle.partitions=7"])):
        with Producer(node.bootstrap) as producer:
            producer.send("fitted", b'{"n": 1}')
        command = moldau("run", str(file), "--master", cluster.url, "--once", *given, *wish)
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=False,
            timeout=WAIT_S * 2,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        # A version, the batch's metadata, offsets.
        facts = json.loads((query / "offsets" / str(number)).read_text().splitlines()[1])
        assert facts["conf"]["spark.sql.shuffle.partitions"] == "2"
        pieces = [one.name for one in (query / "state" / "0").iterdir() if one.name.isdecimal()]
        assert sorted(pieces) == ["0", "1"]


def test_a_table_on_disks_that_are_not_shared(
    cluster: StandaloneCluster, node: ProcessBroker, tmp_path: Path
) -> None:
    """The path leads each process to a different folder, as on several machines: the driver does
    not find the files of the tasks.
    """
    cluster.have_workers(1)
    with Admin(node.bootstrap) as admin:
        admin.create_topics(["unshared"])
    with Producer(node.bootstrap) as producer:
        for number in range(10):
            producer.send("unshared", json.dumps({"n": number}).encode())
    file = tmp_path / "unshared.yaml"
    file.write_text(
        f"settings: {{bootstrap.servers: '{node.bootstrap}'}}\n"
        "sources: {unshared: {topic: unshared, schema: n BIGINT, start: earliest}}\n"
        "steps: {lake: {sql: SELECT n FROM unshared, into: {table: /proc/self/cwd/lake}}}\n"
    )
    line = error_line_of("run", str(file), "--master", cluster.url, "--once", *small(), at=tmp_path)
    assert "tasks wrote 10 rows to /proc/self/cwd/lake" in line
    assert "but it holds 0" in line
    # Nothing was committed, so nothing is lost: the next run starts with this batch.
    assert not list((tmp_path / "lake" / "_moldau").glob("*.json"))
    assert not list((tmp_path / ".moldau").rglob("commits/0"))


def test_tasks_without_moldau_are_an_error_of_one_line(
    cluster: StandaloneCluster, node: ProcessBroker, tmp_path: Path
) -> None:
    cluster.have_workers(1)
    bare = Path(sys.base_prefix) / "bin" / Path(sys.executable).name
    file = tmp_path / "plain.yaml"
    file.write_text(
        f"settings: {{bootstrap.servers: '{node.bootstrap}'}}\n"
        "sources: {plain: {topic: plain, schema: n BIGINT}}\n"
        "steps: {copy: {sql: SELECT n FROM plain, into: {topic: plain.copy}}}\n"
    )
    with Admin(node.bootstrap) as admin:
        admin.create_topics(["plain"])
    archive = packed(tmp_path, str(bare))
    line = error_line_of(
        "run", str(file), "--master", cluster.url, "--env", str(archive), *small(), at=tmp_path
    )
    assert "tasks have no moldau" in line or "tasks have no pyspark" in line
