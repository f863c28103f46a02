"""A program in a JVM of its own, with Apache's logging."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from interop.apache import LOGGING, SMALL_JVM, require_tool
from support.waiting import wait_for

WAIT_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60


class JavaProgram:
    """Runs until it is stopped or killed; its output is in `log`."""

    def __init__(self, classpath: str, main_class: str, log: Path, *arguments: str) -> None:
        command = [require_tool("java"), *SMALL_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "-cp", classpath, main_class, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(STOP_TIMEOUT_S)

    def finish(self) -> None:
        """Wait until it has done its work."""
        status = self._process.wait(WAIT_TIMEOUT_S)
        assert status == 0, self.said()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; fails if the program has ended meanwhile."""

        def holds() -> bool:
            if condition():
                return True
            assert self._process.poll() is None, f"it ended: {self.said()}"
            return False

        try:
            wait_for(holds, what, WAIT_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.said()}") from error

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]
