"""The pipeline of `moldau demo`: `moldau pipeline run` in a process of its own."""

import asyncio
import json
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from moldau.core.pipelines.query_progress import QueryProgress
from moldau.protocol.errors import MoldauError

FILE = "orders.yaml"
LOG = "pipeline.log"
_LINE_BYTES_MAX = 1 << 20


def write_pipeline_file(folder: Path) -> Path:
    """Writes the pipeline's file unless it exists, and returns its path. Users may edit it."""
    path = folder / FILE
    if not path.exists():
        path.write_text((files("moldau.cli.demo") / FILE).read_text())
    return path


class PipelineProcess:
    """A process that also ends when this one is killed, because its stdin is closed then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(LOG)
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopping = False

    async def start(self, bootstrap: str) -> None:
        arguments = ("pipeline", "run", str(self._path), "--bootstrap", bootstrap)
        errors: IO[Any]
        with self._log.open("w") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "moldau",
                *arguments,
                "--json",
                "--tied",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_LINE_BYTES_MAX,
                # Ctrl-C must reach only this process, which stops everything in order.
                start_new_session=True,
            )

    async def follow(self, queries: dict[str, QueryProgress]) -> None:
        """Collects progress until the process ends. Raises MoldauError if it was not stopped."""
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            progress = QueryProgress(**json.loads(line))
            queries[progress.query] = progress
        await self._process.wait()
        if not self._is_stopping:
            raise MoldauError(f"the pipeline has ended: {self._last_error()}")

    def _last_error(self) -> str:
        lines = [line for line in self._log.read_text().splitlines() if line.startswith("moldau:")]
        return lines[-1].removeprefix("moldau: ") if lines else f"see {self._log}"

    def stop(self) -> None:
        """Stops the pipeline after its batch; the second call kills it."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            if self._is_stopping:
                self._process.kill()
            else:
                self._process.terminate()
        self._is_stopping = True

    async def ended(self) -> None:
        if self._process is not None:
            await self._process.wait()
