"""Runs jobs with Spark's own connector, in its own environment."""

import json
import subprocess
from pathlib import Path
from typing import Any

from interop.peers.toolchains import Spark, clean_environment

RUN_TIMEOUT_S = 900


def run_cases(installed: Spark, job: Path, cases: str, folder: Path) -> dict[str, Any]:
    """Runs `cases`, which is JSON. Returns the job's result for each, by name."""
    file = folder / "cases.json"
    file.write_text(cases, encoding="utf-8")
    found: dict[str, Any] = run_job(installed, job, folder, str(file))
    return found


def run_job(installed: Spark, job: Path, folder: Path, *words: str) -> Any:
    """The job's report."""
    command = [str(installed.python), str(job), ",".join(map(str, installed.jars)), *words]
    variables = {"PYSPARK_PYTHON": str(installed.python), "SPARK_LOCAL_IP": "127.0.0.1"}
    run = subprocess.run(
        command,
        cwd=folder,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-6000:]
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("SEEN ")]
    return json.loads(line.removeprefix("SEEN "))
