"""Targets that name files name all of them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What benchmarks/spark.py runs in Spark.
RUN_BY_OTHERS = {"spark_job"}


def test_make_bench_runs_every_benchmark() -> None:
    programs = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    (named,) = re.findall(r"^BENCHMARKS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(named.split()) == programs - RUN_BY_OTHERS
