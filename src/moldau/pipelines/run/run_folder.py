"""What a run keeps on its own machine: how it goes and who runs it, beside Spark's checkpoints
where these are here too. What belongs to the checkpoints themselves is in checkpoint_notes.py.
"""

import fcntl
import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moldau.core.pipelines.graph import Http, Pipeline
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.protocol.errors import MoldauError
from moldau.storage.disk.disk_calls import sync_file

_OWN = "moldau"


class RunFolder:
    """`path`: a folder of this machine. Spark's checkpoints are there, or at a URL."""

    def __init__(self, path: Path, url: str | None = None) -> None:
        self.path = path.absolute()
        # With a scheme: else Spark looks into whatever file system is a cluster's default.
        self.checkpoint = f"file://{self.path}" if url is None else url.rstrip("/")
        self.is_here = url is None

    def checkpoint_of(self, query: str) -> str:
        return f"{self.checkpoint}/{query}"

    def kept_answers(self, query: str, source: str) -> str:
        """Where answers of HTTP stay until their batch is done."""
        return str(self.path / _OWN / "answers" / f"{query}.{source}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else runs it meanwhile. Raises MoldauError."""
        (self.path / _OWN).mkdir(parents=True, exist_ok=True)
        with (self.path / _OWN / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise MoldauError(
                    f"the pipeline runs already, in process {self._holder()}; "
                    "moldau pipeline stop ends it"
                ) from None
            # Here, not in what the last run said about itself: who is asked to stop must be right.
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _holder(self) -> int | None:
        text = (self.path / _OWN / "lock").read_text()
        return int(text) if text.isdecimal() else None

    @property
    def is_running(self) -> bool:
        """Whether a process holds it, however the last one ended."""
        file = self.path / _OWN / "lock"
        if not file.exists():
            return False
        with file.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def read(self, name: str) -> dict[str, Any]:
        file = self.path / _OWN / name
        try:
            found = json.loads(file.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            raise MoldauError(f"{file} is damaged") from None
        return found if isinstance(found, dict) else {}

    def write(self, name: str, content: dict[str, Any]) -> None:
        """All of it or nothing."""
        file = self.path / _OWN / name
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".new")
        with beside.open("w") as out:
            out.write(json.dumps(content, indent=1))
            out.flush()
            sync_file(out.fileno())
        beside.replace(file)

    def tell_phase(self, name: str, phase: str) -> None:
        """What a run does before its queries are there."""
        self.write(
            "status.json",
            {
                "name": name,
                "pid": os.getpid(),
                "error": None,
                "phase": phase,
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
                "queries": [],
            },
        )

    def status(self) -> dict[str, Any]:
        """As the last run wrote it; a run that was killed could not say that it ends."""
        found = self.read("status.json")
        if found and not self.is_running:
            for query in found["queries"]:
                if query["state"] in {"starting", "running"}:
                    query["state"] = "killed"
        return found | {"running": self.is_running} if found else found

    def ask_to_stop(self) -> bool:
        """False: nobody runs it."""
        if not self.is_running:
            return False
        pid = self._holder()
        if pid is None:
            raise MoldauError("the pipeline has just begun; try again")
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return False
        return True

    def forget(self) -> None:
        """Checkpoints and everything else. Raises MoldauError while it runs."""
        if self.is_running:
            raise MoldauError("the pipeline runs; stop it first")
        if self.path.exists():
            shutil.rmtree(self.path)


def folder_of(pipeline: Pipeline, file: Path, given: str | None = None) -> RunFolder:
    """Where `given` or the file says, else beside it. URLs are for Hadoop's file systems.
    Raises PipelineError.
    """
    home = file.parent.resolve()
    if given is not None and "://" not in given:
        return RunFolder(Path(given))
    wanted = given or pipeline.checkpoint or f".moldau/{pipeline.name}"
    if wanted.startswith("file://"):
        return RunFolder(Path(wanted.removeprefix("file://")))
    if "://" in wanted:
        _refuse_answers_elsewhere(pipeline, wanted)
        digest = hashlib.sha256(wanted.rstrip("/").encode()).hexdigest()[:8]
        return RunFolder(home / f".moldau/{pipeline.name}@{digest}", wanted)
    return RunFolder(home / wanted)


def _refuse_answers_elsewhere(pipeline: Pipeline, checkpoint: str) -> None:
    """A run on another machine would not find the answers that its checkpoint counts on."""
    for name, source in pipeline.sources.items():
        if isinstance(source, Http):
            raise pipeline_error(
                source.spot,
                f"'{name}' keeps answers with its checkpoint, which must be a folder then, "
                f"not {checkpoint}",
            )
