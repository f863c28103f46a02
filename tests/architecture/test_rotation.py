"""The parts in which CI runs the long suites, and what it makes of failures."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from support.rotation import chosen_files

from tools.long_suites import SUITES, TIME_WAS_UP, Suite, Verdict, run_suites


def test_every_file_is_in_exactly_one_part() -> None:
    files = {f"tests/test_{number}.py" for number in range(10)}
    parts = [chosen_files(files, number, 3) for number in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(files)
    assert {len(part) for part in parts} == {3, 4}


SUITE = Suite("slow", ("-m", "slow"), parts=3)
TEST = "tests/test_a.py::test_b"


class ScriptedRuns:
    """pytest's statuses and failures, in order."""

    def __init__(self, *outcomes: tuple[int, list[str]]) -> None:
        self.outcomes = list(outcomes)
        self.options: list[Sequence[str]] = []

    def __call__(self, options: Sequence[str], _seconds: float) -> tuple[int, list[str]]:
        self.options.append(options)
        return self.outcomes.pop(0)


def judged(*outcomes: tuple[int, list[str]], seconds: float = 60) -> Verdict:
    runs = ScriptedRuns(*outcomes)
    verdict = run_suites([SUITE], 4, seconds, runs)
    assert runs.outcomes == [], "all of these runs are needed"
    return verdict


def test_every_part_has_its_turn() -> None:
    assert {SUITE.part(turn) for turn in range(3)} == {"1/3", "2/3", "3/3"}


def test_a_suite_that_passes_is_run_once() -> None:
    assert judged((0, [])).lines() == ["== the long suites: all passed"]


def test_what_fails_must_pass_three_times_alone_and_is_reported() -> None:
    verdict = judged((1, [TEST]), (0, []), (0, []), (0, []))
    assert verdict.failures == []
    assert verdict.unstable == [TEST]
    assert any(TEST in line for line in verdict.lines())


def test_repeated_tests_run_alone() -> None:
    runs = ScriptedRuns((1, [TEST]), (0, []), (0, []), (0, []))
    run_suites([SUITE], 4, 60, runs)
    first, *repeats = runs.options
    assert first == ["-m", "slow", "--part", "2/3"]
    assert repeats == [["-m", "slow", "--numprocesses", "0", TEST]] * 3


def test_a_second_failure_is_final() -> None:
    verdict = judged((1, [TEST]), (0, []), (1, [TEST]))
    assert (verdict.failures, verdict.unstable) == ([TEST], [])


def test_many_failures_are_final() -> None:
    failed = [f"{TEST}[{number}]" for number in range(11)]
    assert judged((1, failed)).failures == failed


def test_what_is_no_failure_of_a_test_is_final() -> None:
    assert judged((2, [])).failures == ["slow, part 2/3: pytest ended with status 2"]


def test_a_part_that_does_not_end_in_time_fails() -> None:
    assert len(judged((TIME_WAS_UP, [])).failures) == 1
    assert len(judged((1, [TEST]), (TIME_WAS_UP, [])).failures) == 1
    assert len(judged(seconds=0).failures) == 1


def test_the_suites_have_the_options_of_their_targets() -> None:
    lines = (Path(__file__).parents[2] / "Makefile").read_text().splitlines()
    for suite in SUITES:
        command = f"-m pytest {shlex.join(suite.options)}".replace("'", '"')
        assert any(command in line for line in lines), suite
