"""Runs Apache's own performance tools against a node and parses their numbers."""

import re
import subprocess
from typing import NamedTuple

from node_peers import kafka_libs

TOOL_HEAP = ("-Xmx512M", "-Xms512M", "-XX:+UseSerialGC")
TOOL_TIMEOUT_S = 600


class Produced(NamedTuple):
    records_per_second: float
    mean_ms: float
    p99_ms: float
    p999_ms: float


def produce(
    bootstrap: str,
    topic: str,
    *,
    count: int,
    warm_up: int,
    size: int,
    rate: int = -1,
    properties: tuple[str, ...],
) -> Produced:
    """ProducerPerformance; `warm_up` of the `count` records are not measured."""
    options = [option for each in properties for option in ("--command-property", each)]
    output = _run(
        "ProducerPerformance", "--topic", topic, "--num-records", str(count), "--warmup-records",
        str(warm_up), "--record-size", str(size), "--throughput", str(rate),
        "--bootstrap-server", bootstrap, *options,
    )  # fmt: skip
    summary = next(line for line in reversed(output.splitlines()) if "99.9th" in line)
    figures = [
        re.search(pattern, summary)
        for pattern in (
            r"([\d.]+) records/sec",
            r"([\d.]+) ms avg latency",
            r"([\d.]+) ms 99th",
            r"([\d.]+) ms 99.9th",
        )
    ]
    return Produced(*(float(found.group(1)) for found in figures if found is not None))


class Consumed(NamedTuple):
    records_per_second: float
    fetched_per_second: float
    """Without the time of joining the group."""


def consume(bootstrap: str, topic: str, count: int) -> Consumed:
    """ConsumerPerformance."""
    output = _run(
        "ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", topic,
        "--num-records", str(count), "--timeout", "60000", "--hide-header",
    )  # fmt: skip
    fields = output.strip().splitlines()[-1].split(",")
    if int(fields[4]) < count:
        raise SystemExit(f"ConsumerPerformance read {fields[4]} of {count} records")
    return Consumed(float(fields[5]), float(fields[9]))


def _run(tool: str, *arguments: str) -> str:
    command = ["java", *TOOL_HEAP, "-cp", kafka_libs(), f"org.apache.kafka.tools.{tool}"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=TOOL_TIMEOUT_S
    )
    if done.returncode:
        raise SystemExit(f"{tool} failed: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    return done.stdout
