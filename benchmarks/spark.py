"""How fast are the source and the sink `moldau` compared with Spark's own JVM connector, with the
same Spark, data and broker, in one run? And how much memory do the driver and its workers need for
a long backlog?

    python benchmarks/spark.py [--quick] [--rows 2000000] [--rounds 3] [--backlog 10000000]
                               [--few-batches 50] [--peers "moldau group,apache"] [--note TEXT]

Both run on PySpark 4.2, the newest version with the connector's jars, which are fetched as in the
interop suite. Records have 8-byte keys and 100-byte values, in four partitions.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
from kept_results import keep
from node_peers import Peer, running_peers

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from interop.apache import made_once, run_step  # noqa: E402
from interop.missing import CACHE  # noqa: E402
from interop.peers.toolchains import spark as sparks_connector  # noqa: E402

from moldau import Admin, Producer  # noqa: E402
from moldau.admin import NewTopic  # noqa: E402

JOB = Path(__file__).with_name("spark_job.py")
PARTITIONS = 4
CHUNK = 50_000
FEW_PER_BATCH = 100
FEW_BATCHES = 50
NEEDED = ("pyspark==4.2.0", "pyarrow==26.0.1", "pandas==2.3.3", "crc32c", "cramjam", "uvloop")
FETCH_TIMEOUT_S = 900.0
RUN_TIMEOUT_S = 3600
LOOK_S = 0.05
# The aim, as a multiple of the JVM connector's speed.
AIMS = {
    "read 7 columns, cold": 3.0,
    "read 7 columns": 2.0,
    "read key and value": 2.0,
    "read value": 2.0,
    "write, cold": None,
    "write": 2.0,
    "topic to topic": None,
    "stream": None,
}
EXACT_SHARE = "exactly once to at least once"
EXACT_SHARE_AIM = 0.8
RATE = "M rows/s"
COST = "processor s per M rows"


def environment() -> Path:
    """A Python with PySpark 4.2 and the dependencies of Moldau; Moldau itself comes from
    the clone.
    """

    def build(folder: Path) -> None:
        make = [sys.executable, "-m", "venv", str(folder)]
        run_step(make, "making an environment", timeout_s=FETCH_TIMEOUT_S)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *NEEDED]
        run_step(pip, "fetching PySpark", timeout_s=FETCH_TIMEOUT_S)

    return made_once(CACHE / "spark-benchmark-4.2.0", build) / "bin" / "python"


def fill(bootstrap: str, topic: str, rows: int) -> None:
    value = os.urandom(50).hex().encode()
    with Producer(bootstrap) as producer:
        for first in range(0, rows, CHUNK):
            count = min(CHUNK, rows - first)
            keys = [b"%08d" % number for number in range(first, first + count)]
            producer.send_table(topic, pa.table({"key": keys, "value": [value] * count}))


class Memory(threading.Thread):
    """The largest memory of Spark's processes, measured from outside."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._ends = threading.Event()
        self.most_mb = {"java": 0.0, "one Python worker": 0.0, "all Python workers": 0.0}

    def run(self) -> None:
        while not self._ends.wait(LOOK_S):
            java_mb, workers_mb = 0.0, [0.0]
            try:
                for process in self._root.children(recursive=True):
                    if process.name().startswith("java"):
                        java_mb += process.memory_info().rss / 1e6
                    else:
                        # Workers share pages with the process that they are forked from.
                        workers_mb.append(process.memory_full_info().uss / 1e6)
            except psutil.Error:
                continue
            found = (java_mb, max(workers_mb), sum(workers_mb))
            for name, value in zip(self.most_mb, found, strict=True):
                self.most_mb[name] = max(self.most_mb[name], round(value))

    def end(self) -> dict[str, float]:
        self._ends.set()
        self.join()
        return self.most_mb


def measure(peer: Peer, orders: dict[str, Any], *, sees_memory: bool = False) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        is_kafka = orders["format"] == "kafka"
        arguments = {
            "jars": ",".join(map(str, sparks_connector(CACHE).jars)) if is_kafka else "",
            "address": peer.bootstrap,
            "few per batch": FEW_PER_BATCH,
            "folder": folder,
            **orders,
        }
        variables = {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
        # Bytecode is cached, as for every installed package.
        known = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        job = subprocess.Popen(
            [environment(), JOB, json.dumps(arguments)],
            env=known | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        memory = Memory(job.pid)
        if sees_memory:
            memory.start()
        try:
            found = read_answers(job, f"{peer.label}, {orders['format']}")
        finally:
            # Its Spark ends with it.
            job.kill()
        if sees_memory:
            found["most MB"] = memory.end()
    return found


def processor_s(pid: int) -> float:
    """Processor time of a process and all its descendants, including ended ones."""
    root = psutil.Process(pid)
    sum_s = 0.0
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            sum_s += sum(process.cpu_times()[:4])
    return sum_s


def read_answers(job: "subprocess.Popen[str]", label: str) -> dict[str, Any]:
    """The job's measurements; its parts are shown as they arrive."""
    assert job.stdin is not None
    assert job.stdout is not None
    assert job.stderr is not None
    errors: list[str] = []
    stderr = job.stderr
    drain = threading.Thread(target=lambda: errors.extend(stderr), daemon=True)
    drain.start()
    late = threading.Timer(RUN_TIMEOUT_S, job.kill)
    late.daemon = True
    late.start()
    found: dict[str, Any] = {}
    for line in job.stdout:
        if line == "PROCESSOR\n":
            job.stdin.write(f"{processor_s(job.pid)}\n")
            job.stdin.flush()
        if line.startswith("PART "):
            sys.stdout.write(f"  {label}: {line.removeprefix('PART ')}")
            sys.stdout.flush()
        if line.startswith("MEASURED "):
            found = json.loads(line.removeprefix("MEASURED "))
    code = job.wait()
    late.cancel()
    drain.join()
    if code or not found:
        raise SystemExit(f"{label}: {''.join(errors)[-4000:]}")
    return found


class Ratio(NamedTuple):
    """The factor in speed; above 1 is faster."""

    by_clock: float
    by_processor: float


def ratio(ours: dict[str, float], theirs: dict[str, float]) -> Ratio:
    return Ratio(round(ours[RATE] / theirs[RATE], 2), round(theirs[COST] / ours[COST], 2))


def ratios(found: dict[str, Any]) -> dict[str, Ratio]:
    """Of `moldau` to `kafka`, and of exactly-once to at-least-once."""
    ours, theirs = found["moldau"], found["kafka"]
    result = {label: ratio(ours[label], theirs[label]) for label in AIMS}
    plain = ours["stream, at least once by foreachBatch"]
    result[EXACT_SHARE] = ratio(ours["stream, exactly once"], plain)
    return result


def show(label: str, found: dict[str, Ratio]) -> None:
    print(f"{label}: times the JVM connector, by the clock and by processor time")
    aims = AIMS | {EXACT_SHARE: EXACT_SHARE_AIM}
    for name, (clock, processor) in found.items():
        aim = aims[name]
        wanted = "" if aim is None else f"  (aim {aim}: {'met' if clock >= aim else 'missed'})"
        print(f"  {name:32} {clock:6.2f} {processor:6.2f}{wanted}")


def compare(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    with Admin(peer.bootstrap) as admin:
        names = ["from", "few", "to-kafka", "to-moldau"]
        admin.create_topics([NewTopic(name=one, partitions=PARTITIONS) for one in names])
    fill(peer.bootstrap, "from", options.rows)
    fill(peer.bootstrap, "few", FEW_PER_BATCH * options.few_batches)
    found: dict[str, Any] = {}
    # Load of the machine, including other programs: before, in between and after.
    loads = [round(os.getloadavg()[0], 1)]
    for kind in ("kafka", "moldau"):
        orders = {
            "part": "speed",
            "format": kind,
            "topic": "from",
            "target": f"to-{kind}",
            "rows": options.rows,
            "rounds": options.rounds,
        }
        found[kind] = measure(peer, orders)
        loads.append(round(os.getloadavg()[0], 1))
    found["load"] = loads
    compared = ratios(found)
    found["ratios"] = {name: one._asdict() for name, one in compared.items()}
    show(peer.label, compared)
    return found


def backlogs(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    """The same work on a tenth of the backlog, then on all of it."""
    found: dict[str, Any] = {}
    for rows in (options.backlog // 10, options.backlog):
        topic = f"backlog-{rows}"
        with Admin(peer.bootstrap) as admin:
            names = [topic, f"{topic}-copy"]
            admin.create_topics([NewTopic(name=one, partitions=PARTITIONS) for one in names])
        fill(peer.bootstrap, topic, rows)
        orders = {
            "part": "backlog",
            "format": "moldau",
            "topic": topic,
            "target": f"{topic}-copy",
            "rows": rows,
        }
        found[str(rows)] = measure(peer, orders, sees_memory=True)
        print(f"  {peer.label}, backlog of {rows}: {json.dumps(found[str(rows)])}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few rows: does it all work?")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backlog", type=int, default=10_000_000, help="rows; 0 leaves it out")
    parser.add_argument("--few-batches", type=int, default=FEW_BATCHES, help="for the latency")
    parser.add_argument("--peers", default="moldau group,apache")
    parser.add_argument("--note", default="", help="what else is worth knowing, for the results")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.rounds, options.backlog = 100_000, 1, min(options.backlog, 100_000)
        options.few_batches = 6
    subprocess.run([str(environment()), "-m", "compileall", "-q", str(ROOT / "src")], check=True)
    results: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    began = time.perf_counter()
    # One at a time: each has the machine for itself.
    for label in options.peers.split(","):
        with running_peers([label]) as (peer,):
            results[peer.label] = compare(peer, options)
            if options.backlog and not memory:
                memory = {peer.label: backlogs(peer, options)}
        if not options.quick:
            # Saved after each peer, so that an interrupted run keeps its results.
            note = {"rows": options.rows, "rounds": options.rounds, "note": options.note}
            keep("spark", **note, brokers=results, backlog=memory)
    print(f"took {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
