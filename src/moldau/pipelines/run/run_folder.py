"""The files of a run on its own machine: its status and its lock, beside Spark's checkpoints if
those are on this machine too. Metadata of the checkpoints is in checkpoint_metadata.py.
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
    """A folder of this machine. Spark's checkpoints are in it, or at a URL."""

    def __init__(self, path: Path, url: str | None = None) -> None:
        self.path = path.absolute()
        # With a scheme, because Spark would use the cluster's default file system.
        self.checkpoint = f"file://{self.path}" if url is None else url.rstrip("/")
        self.is_here = url is None

    def checkpoint_of(self, query: str) -> str:
        return f"{self.checkpoint}/{query}"

    def kept_answers(self, query: str, source: str) -> str:
        """The folder for HTTP answers, which are kept until their batch is done."""
        return str(self.path / _OWN / "answers" / f"{query}.{source}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Locks the folder within the block. Raises MoldauError if another process holds it."""
        (self.path / _OWN).mkdir(parents=True, exist_ok=True)
        with (self.path / _OWN / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise MoldauError(
                    f"the pipeline is already running, in process {self._holder()}; "
                    "stop it with moldau pipeline stop"
                ) from None
            # In the lock file: the status may be that of an earlier run, and a signal must reach
            # the right process.
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _holder(self) -> int | None:
        text = (self.path / _OWN / "lock").read_text()
        return int(text) if text.isdecimal() else None

    @property
    def is_running(self) -> bool:
        """Whether a process holds the lock; it is released even when a process is killed."""
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
        """Replaces the file atomically."""
        file = self.path / _OWN / name
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".new")
        with beside.open("w") as out:
            out.write(json.dumps(content, indent=1))
            out.flush()
            sync_file(out.fileno())
        beside.replace(file)

    def write_phase(self, name: str, phase: str) -> None:
        """Records the phase of a run that has no queries yet."""
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
        """The status that the last run has recorded, corrected if that run was killed."""
        found = self.read("status.json")
        if found and not self.is_running:
            for query in found["queries"]:
                if query["state"] in {"starting", "running"}:
                    query["state"] = "killed"
        return found | {"running": self.is_running} if found else found

    def request_stop(self) -> bool:
        """Requests the running process to stop. Returns False if the pipeline is not running."""
        if not self.is_running:
            return False
        pid = self._holder()
        if pid is None:
            raise MoldauError("the pipeline has just started; try again")
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return False
        return True

    def forget(self) -> None:
        """Deletes the folder with its checkpoints. Raises MoldauError while the pipeline runs."""
        if self.is_running:
            raise MoldauError("the pipeline is running; stop it first")
        if self.path.exists():
            shutil.rmtree(self.path)


def folder_of(pipeline: Pipeline, file: Path, given: str | None = None) -> RunFolder:
    """The folder named by `given` or the file, by default one beside the file. URLs are for
    Hadoop's file systems. Raises PipelineError.
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
    """Raises PipelineError: a run on another machine would not find the answers."""
    for name, source in pipeline.sources.items():
        if isinstance(source, Http):
            raise pipeline_error(
                source.spot,
                f"'{name}' keeps HTTP answers with its checkpoint, which must be a local folder, "
                f"not {checkpoint}",
            )
