"""A real standalone cluster of Spark on loopback: a small master and small workers, each a process
that runs the wheel's jars.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Self

from support.waiting import wait_for
from support.worker_killing import WORKER, kill_with_children

WAIT_S = 300.0
MASTER = "org.apache.spark.deploy.master.Master"
# Settings for drivers: small, and quick to detect that an executor is gone.
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
}


class StandaloneCluster:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        log = self._folder / "master.log"
        master = self._start(log, MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        found: list[str] = []

        def has_begun() -> bool:
            assert master.poll() is None, log.read_text()
            found.extend(re.findall(r"Starting Spark master at (spark://\S+)", log.read_text()))
            return bool(found)

        wait_for(has_begun, "the master", WAIT_S)
        self.url = found[0]
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            kill_with_children(process.pid)
            process.wait()

    def have_workers(self, count: int) -> None:
        """Ensures `count` live workers; new ones replace dead ones."""
        alive = sum(one.poll() is None for one in self.workers)
        for _ in range(count - alive):
            self.add_worker()

    def add_worker(self) -> None:
        """Returns when the master has registered it."""
        number = len(self.workers)
        log = self._folder / f"worker{number}.log"
        worker = self._start(
            log, WORKER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
            "--cores", "1", "--memory", "700m", "--work-dir", str(self._folder / f"work{number}"),
            self.url,
        )  # fmt: skip
        self.workers.append(worker)

        def is_known() -> bool:
            assert worker.poll() is None, log.read_text()
            return "Successfully registered with master" in log.read_text()

        wait_for(is_known, "a worker", WAIT_S)

    def _start(self, log: Path, *arguments: str) -> "subprocess.Popen[bytes]":
        with log.open("wb") as out:
            process = subprocess.Popen(
                [spark_home() / "bin" / "spark-class", *arguments],
                env=environment(),
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        self._processes.append(process)
        return process


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def environment(**more: str) -> dict[str, str]:
    """Small, on loopback, and with the Java that jobs use. Drivers use the Python of the tests;
    workers have none of their own.
    """
    from moldau.pipelines.run.worker_python import worker_python
    from moldau.spark import ensure_java

    ensure_java()
    known = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC",
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": worker_python(),
    }
    return os.environ | known | more
