"""Runs one part of each long suite, for CI: `tools/long_suites.py --seconds 3000`.

The commit chooses the parts, so that they rotate (`--turn` chooses by hand). A test that fails is
run three more times, alone: another failure is final, and three passes are reported as unstable in
the last lines. A part that does not end in time fails, and pytest lists the tests that did not run.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
REPEATS = 3
# A busy machine does not explain more failures than this.
REPEATED_MAX = 10
# After an interrupt pytest ends its fixtures, which stop nodes and JVMs, and prints its summary.
GRACE_S = 120
SOME_TESTS_FAILED = 1
TIME_WAS_UP = -1


@dataclass(frozen=True)
class Suite:
    """`options` are those of the target in the Makefile."""

    name: str
    options: tuple[str, ...]
    parts: int

    def part(self, turn: int) -> str:
        return f"{turn % self.parts + 1}/{self.parts}"


SUITES = (
    Suite(
        "spark", ("-m", "spark and not slow", "--numprocesses", "2", "--dist", "loadfile"), parts=2
    ),
    Suite("interop", ("-m", "interop"), parts=3),
    Suite("slow", ("-m", "slow", "--numprocesses", "2"), parts=3),
)
# Runs pytest with arguments and a time limit in seconds. Returns its status and the failed tests.
Run = Callable[[Sequence[str], float], tuple[int, list[str]]]


@dataclass
class Verdict:
    """The result that the last lines of the output report."""

    failures: list[str] = field(default_factory=list)
    unstable: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        lines = []
        if self.unstable:
            lines.append(f"UNSTABLE: failed once, then passed {REPEATS} times alone. Fix these:")
            lines += [f"  {test}" for test in self.unstable]
        lines += [f"FAILED: {failure}" for failure in self.failures]
        return [f"== {line}" for line in lines or ["the long suites: all passed"]]


def run_suites(suites: Sequence[Suite], turn: int, seconds: float, run: Run) -> Verdict:
    """Runs every suite, whatever the result of the previous one."""
    verdict = Verdict()
    end_s = time.monotonic() + seconds
    for suite in suites:
        name = f"{suite.name}, part {suite.part(turn)}"
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            verdict.failures.append(f"{name}: not run at all, the time was up")
            continue
        print(f"== {name}", flush=True)
        options = [*suite.options, "--part", suite.part(turn)]
        status, failed = run(options, left_s)
        if status == TIME_WAS_UP:
            verdict.failures.append(f"{name}: the time was up, see above for what was not run")
        elif status == SOME_TESTS_FAILED and len(failed) > REPEATED_MAX:
            verdict.failures.extend(failed)
        elif status == SOME_TESTS_FAILED and failed:
            repeat(suite, failed, end_s, run, verdict)
        elif status:
            verdict.failures.append(f"{name}: pytest ended with status {status}")
    return verdict


def repeat(suite: Suite, failed: list[str], end_s: float, run: Run, verdict: Verdict) -> None:
    """Runs the failed tests again, alone: a busy machine cannot explain another failure."""
    for number in range(1, REPEATS + 1):
        print(f"== {suite.name}: {len(failed)} failed, alone {number}/{REPEATS}", flush=True)
        options = [*suite.options, "--numprocesses", "0", *failed]
        status, again = run(options, end_s - time.monotonic())
        if status == TIME_WAS_UP:
            verdict.failures.append(f"{suite.name}: no time to repeat {', '.join(failed)}")
            return
        if status:
            verdict.failures.extend(again or [f"{suite.name}: pytest ended with status {status}"])
            return
    verdict.unstable.extend(failed)


def run_pytest(options: Sequence[str], seconds: float) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *options]
        # A group of its own: an interrupt reaches pytest's workers, too.
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        status = wait(process, seconds)
        failed = Path(cache, "v", "cache", "lastfailed")
        return status, sorted(json.loads(failed.read_text())) if failed.exists() else []


def wait(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    for signal_number, patience_s in ((signal.SIGINT, seconds), (signal.SIGKILL, GRACE_S)):
        try:
            status = process.wait(max(patience_s, 0))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal_number)
        else:
            return status if signal_number is signal.SIGINT else TIME_WAS_UP
    process.wait()
    return TIME_WAS_UP


def turn_of_commit() -> int:
    """From the commit's hash: a count of commits would skip parts if several are pushed at once."""
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(head.stdout[:12], 16)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="time limit for all suites")
    parser.add_argument(
        "--turn", type=int, help="number that chooses the parts, instead of the commit"
    )
    parser.add_argument("suites", nargs="*", help="spark, interop or slow; all by default")
    arguments = parser.parse_args()
    turn = turn_of_commit() if arguments.turn is None else arguments.turn
    chosen = [suite for suite in SUITES if suite.name in arguments.suites or not arguments.suites]
    verdict = run_suites(chosen, turn, arguments.seconds, run_pytest)
    print(*verdict.lines(), sep="\n")
    return 1 if verdict.failures else 0


if __name__ == "__main__":
    sys.exit(main())
