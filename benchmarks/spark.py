"""How fast is the source and sink `moldau` beside Spark's own JVM connector: same Spark, same data,
same broker, in one run?

    python benchmarks/spark.py [--rows 2000000] [--rounds 2] [--peers "moldau group,apache"]

Both run on PySpark 4.2, the newest that has the connector's jars, which are fetched as the interop
suite fetches them. Records have 8-byte keys and 100-byte values, in four partitions.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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
NEEDED = ("pyspark==4.2.0", "pyarrow==26.0.1", "pandas==2.3.3", "crc32c", "cramjam", "uvloop")
FETCH_TIMEOUT_S = 900.0
RUN_TIMEOUT_S = 3600


def environment() -> Path:
    """A Python with PySpark 4.2 and what Moldau needs; Moldau itself comes from the clone."""

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


def measure(peer: Peer, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        orders = {
            "format": kind,
            "jars": ",".join(map(str, sparks_connector(CACHE).jars)) if kind == "kafka" else "",
            "address": peer.bootstrap,
            "topic": "from",
            "target": f"to-{kind}",
            "rows": options.rows,
            "rounds": options.rounds,
            "folder": folder,
        }
        variables = {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            [environment(), JOB, json.dumps(orders)],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("MEASURED ")]
    found: dict[str, Any] = json.loads(line.removeprefix("MEASURED "))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peers", default="moldau group,apache")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with running_peers(options.peers.split(",")) as peers:
        for peer in peers:
            with Admin(peer.bootstrap) as admin:
                names = ["from", "to-kafka", "to-moldau"]
                admin.create_topics([NewTopic(name=one, partitions=PARTITIONS) for one in names])
            fill(peer.bootstrap, "from", options.rows)
            for kind in ("kafka", "moldau"):
                results.setdefault(peer.label, {})[kind] = measure(peer, kind, options)
                print(peer.label, kind, json.dumps(results[peer.label][kind], indent=1))
            peer.stop()
    keep("spark", rows=options.rows, unit="M rows/s", load=os.getloadavg(), brokers=results)


if __name__ == "__main__":
    main()
