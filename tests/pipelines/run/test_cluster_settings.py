"""Checks of a cluster before Spark starts, and errors of tasks that cannot work."""

import os
import sys
from pathlib import Path

import pytest
from pipelines.pipeline_files import ORDERS_PYTHON, ORDERS_YAML, written
from support.running_node import free_port
from typer.testing import CliRunner

import moldau.pipelines as mp
from moldau.cli.pipeline.command import app
from moldau.pipelines.run.masters import check_master
from moldau.pipelines.run.run_folder import folder_of
from moldau.pipelines.run.task_check import task_failure
from moldau.pipelines.run.task_python import python_for_tasks, shipped
from moldau.protocol.errors import MoldauError


@pytest.mark.parametrize("scheme", ["spark://127.0.0.1:{}", "k8s://https://127.0.0.1:{}"])
def test_a_master_that_does_not_answer(scheme: str) -> None:
    master = scheme.format(free_port())
    with pytest.raises(MoldauError, match=r"is not reachable: 127.0.0.1:\d+: Connection refused"):
        check_master(master)


def test_one_of_several_masters_is_enough() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        masters = f"spark://127.0.0.1:{free_port()},127.0.0.1:{server.getsockname()[1]}"
        check_master(masters)
    with pytest.raises(MoldauError, match=r"is not reachable: .*refused; .*refused"):
        check_master(masters)


def test_yarn_needs_its_configuration_folder(tmp_path: Path) -> None:
    with pytest.raises(MoldauError, match="HADOOP_CONF_DIR must name the folder"):
        check_master("yarn", {})
    check_master("yarn", {"HADOOP_CONF_DIR": str(tmp_path)})


@pytest.mark.parametrize("master", ["mesos://host:5050", "sprak://host", "host:7077", ""])
def test_an_unknown_kind_of_master_is_refused(master: str) -> None:
    with pytest.raises(MoldauError, match="write local"):
        check_master(master)


def test_a_master_without_a_host() -> None:
    with pytest.raises(MoldauError, match="the host is missing"):
        check_master("spark://:7077")
    with pytest.raises(MoldauError, match="the host is missing"):
        check_master("spark://host:port")


def test_shipped_files_have_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("helpers.py", "environment.tar.gz"):
        Path(name).touch()
    assert shipped("helpers.py, hdfs://host/more.zip", "environment.tar.gz") == {
        "spark.submit.pyFiles": f"{tmp_path}/helpers.py,hdfs://host/more.zip",
        "spark.archives": f"{tmp_path}/environment.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
    }
    far = shipped(None, "hdfs://host/environment.tar.gz")
    assert far["spark.archives"] == "hdfs://host/environment.tar.gz#environment"
    with pytest.raises(MoldauError, match=r"--env gone[.]tar[.]gz: the file does not exist"):
        shipped(None, "gone.tar.gz")
    with pytest.raises(MoldauError, match=r"--py-files gone[.]py: the file does not exist"):
        shipped("helpers.py,gone.py", None)


def test_an_environment_is_for_other_machines(tmp_path: Path) -> None:
    file = written(tmp_path, "orders.py", ORDERS_PYTHON)
    done = CliRunner().invoke(app, ["run", str(file), "--env", "environment.tar.gz"])
    assert isinstance(done.exception, MoldauError)
    assert "add --master" in str(done.exception)


def test_a_python_inside_an_archive_is_our_own_python_on_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark uses the same path on both sides."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "elsewhere")
    before = Path.cwd()
    with python_for_tasks("yarn", {"spark.pyspark.python": "./environment/bin/python"}):
        assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
        assert "PYSPARK_DRIVER_PYTHON" not in os.environ
        asked = os.popen("./environment/bin/python -c 'import sys; print(sys.prefix)'")
        assert asked.read().strip() == sys.prefix
        asked.close()
    assert Path.cwd() == before


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("ModuleNotFoundError: No module named 'moldau'", "tasks have no moldau"),
        ("/opt/bin/python3: No module named pyspark", "tasks have no pyspark"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12", "same minor"),
        ('Cannot run program "/opt/python": error=2, No such file', "there is no /opt/python"),
        ("a\n  ValueError: odd\n\tat java", "tasks cannot work: ValueError: odd"),
    ],
)
def test_failures_of_tasks_become_one_line(message: str, line: str) -> None:
    assert line in task_failure(message)
    assert "\n" not in task_failure(message)


def test_where_checkpoints_are(tmp_path: Path) -> None:
    file = written(tmp_path, "orders.yaml", ORDERS_YAML)
    pipeline = mp.load(file)
    beside = folder_of(pipeline, file)
    assert beside.checkpoint_of("big") == f"file://{tmp_path}/.moldau/orders/big"
    assert beside.path == tmp_path / ".moldau" / "orders"

    given = folder_of(pipeline, file, "file:///data/state")
    assert (given.path, given.is_here) == (Path("/data/state"), True)

    far, other = (folder_of(pipeline, file, f"hdfs://host/{name}/") for name in ("a", "b"))
    assert far.checkpoint_of("big") == "hdfs://host/a/big"
    assert not far.is_here
    # The process's own files are here, and runs with other checkpoints have other folders.
    assert far.path.parent == other.path.parent == tmp_path / ".moldau"
    assert far.path != other.path
