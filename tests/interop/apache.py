"""Apache Kafka 4.3.1 as an oracle: its jars, fetched by name with Maven, and one JVM that serves
queries.

Nothing here depends on Moldau. Fetched and compiled files are in the clone's git-ignored
`.interop/`.
"""

import hashlib
import os
import select
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

KAFKA_VERSION = "4.3.1"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
POM = HERE / "pom.xml"
JAVA_SOURCES = HERE / "java"
LOGGING = JAVA_SOURCES / "log4j2.properties"

FETCH_TIMEOUT_S = 600
COMPILE_TIMEOUT_S = 120
ANSWER_TIMEOUT_S = 120
TOOL_TIMEOUT_S = 100.0
STOP_TIMEOUT_S = 20

# Small, short-lived JVMs: the first compiler tier and the serial collector start fastest.
SMALL_JVM = ("-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class ApacheUnavailableError(Exception):
    """The machine lacks a toolchain, or the jars cannot be fetched; the message names the cause."""


class ApacheRefusedError(Exception):
    """Apache's code threw an exception: `kind` is the Java class, the rest its message."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The output and the exit status of a command line tool."""

    status: int
    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """Apache's result for some bytes: its view, its re-encoding, and the number of unread bytes."""

    view: bytes
    rewritten: bytes
    unread: int


def require_tool(name: str) -> str:
    """The path of a program of the JDK or of Maven."""
    found = shutil.which(name)
    if found is None:
        raise ApacheUnavailableError(f"{name} is not installed")
    return found


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A folder of the cache: under its final name it is complete, so it is built
    elsewhere first.
    """
    if folder.is_dir():
        return folder
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True, exist_ok=True)
    try:
        make(partial)
        partial.replace(folder)
    except OSError:
        # Another run may have built it first; that result is as good.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def digest_of(*files: Path) -> str:
    """A name for everything built from these files."""
    content = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()[:16]


def run_step(
    command: Sequence[str], what: str, *, timeout_s: float, folder: Path | None = None
) -> str:
    """Runs one step of fetching or building and returns its output. A failure makes the peer
    unavailable.
    """
    try:
        run = subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.CalledProcessError as error:
        said = (error.stdout + error.stderr)[-1500:]
        raise ApacheUnavailableError(f"{what} failed: {said}") from error
    except subprocess.TimeoutExpired as error:
        raise ApacheUnavailableError(f"{what} took over {timeout_s} s") from error
    return run.stdout


def jars(cache: Path) -> Path:
    """The folder that holds Apache Kafka's jars, fetched on first use."""

    def fetch(folder: Path) -> None:
        command = [require_tool("mvn"), "-q", "-B", "-f", str(POM)]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={folder}"]
        run_step(command, f"fetching Apache Kafka {KAFKA_VERSION}", timeout_s=FETCH_TIMEOUT_S)

    return made_once(cache / f"apache-kafka-{KAFKA_VERSION}-{digest_of(POM)}", fetch)


def oracle_classes(cache: Path, jar_folder: Path) -> Path:
    """The folder with the compiled oracle; compiled again when its source changes."""
    sources = sorted(JAVA_SOURCES.glob("*.java"))

    def compile_into(folder: Path) -> None:
        command = [require_tool("javac"), "-Xlint:all", "-Werror", "-cp", f"{jar_folder}/*"]
        command += ["-d", str(folder), *map(str, sources)]
        run_step(command, "compiling the oracle", timeout_s=COMPILE_TIMEOUT_S)

    return made_once(cache / f"oracle-{digest_of(*sources)}", compile_into)


class ApacheOracle:
    """One JVM with Apache's classes; queried over its standard input, one query at a time."""

    def __init__(self, cache: Path) -> None:
        self.jar_folder = jars(cache)
        classes = oracle_classes(cache, self.jar_folder)
        command = [require_tool("java"), *SMALL_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
        command += ["-cp", f"{classes}:{self.jar_folder}/*", "ApacheOracle"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM: it exits at the end of its input, and is killed if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def versions(self, name: str) -> range:
        """The versions of a message that Apache reads and writes."""
        lowest, highest = self._ask(b"V", name.encode())
        return range(int(lowest), int(highest) + 1)

    def read(self, name: str, version: int, content: bytes) -> ReadAnswer:
        """Let Apache decode bytes."""
        view, rewritten, unread = self._ask(b"R", name.encode(), b"%d" % version, content)
        return ReadAnswer(view, rewritten, int(unread))

    def write(self, name: str, version: int, view: bytes) -> bytes:
        """Let Apache encode a JSON view."""
        (content,) = self._ask(b"W", name.encode(), b"%d" % version, view)
        return content

    def read_batches(self, content: bytes) -> bytes:
        """Let Apache read record batches, checksums and all: a JSON list."""
        (view,) = self._ask(b"B", content)
        return view

    def build_batch(self, view: bytes) -> bytes:
        """Let Apache build a batch from such a list's element."""
        (content,) = self._ask(b"M", view)
        return content

    def run_tool(
        self,
        main_class: str,
        *arguments: str,
        stdin: bytes = b"",
        limit_s: float = TOOL_TIMEOUT_S,
    ) -> ToolRun:
        """Run a command line tool inside the JVM, including exit calls; status 124 after
        a timeout.
        """
        parts = [main_class.encode(), stdin, b"%d" % (limit_s * 1000)]
        parts += [argument.encode() for argument in arguments]
        status, output, errors = self._ask(b"X", *parts)
        return ToolRun(int(status), output.decode(), errors.decode())

    def _ask(self, operation: bytes, *parts: bytes) -> list[bytes]:
        assert self._process.stdin is not None
        question = [operation, struct.pack(">i", len(parts))]
        for part in parts:
            question += [struct.pack(">i", len(part)), part]
        self._process.stdin.write(b"".join(question))
        self._process.stdin.flush()
        refused = self._receive(1) != b"\x00"
        (count,) = struct.unpack(">i", self._receive(4))
        answer = []
        for _ in range(count):
            (size,) = struct.unpack(">i", self._receive(4))
            answer.append(self._receive(size))
        if refused:
            raise ApacheRefusedError(answer[0].decode(), answer[1].decode())
        return answer

    def _receive(self, size: int) -> bytes:
        assert self._process.stdout is not None
        received = bytearray()
        while len(received) < size:
            # The pipe is read without Python's buffer, so that a silent JVM is detected.
            ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"the oracle was silent for {ANSWER_TIMEOUT_S} s")
            chunk = os.read(self._process.stdout.fileno(), size - len(received))
            if not chunk:
                raise EOFError("the oracle's JVM ended")
            received += chunk
        return bytes(received)
