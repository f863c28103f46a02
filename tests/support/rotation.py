"""`--part 2/3`: every third of the chosen test files, from the second on. CI runs the long suites
in parts, which the commit chooses. The summary lists the files that are left for other runs, and
after an interrupt the tests that were not run.
"""

from typing import Any

import pytest

_LEFT = "files left for other runs"
_left_out: set[str] = set()
_collected: set[str] = set()
_finished: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", type=_part, help="K/N: the K-th of N parts of the chosen files")


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    part = int(number), int(count)
    if not 1 <= part[0] <= part[1]:
        raise ValueError(text)
    return part


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After the choice by markers: parts are of what would run."""
    part: tuple[int, int] | None = config.getoption("--part")
    if part is None:
        return
    files = {_file(item) for item in items}
    chosen = chosen_files(files, *part)
    config.hook.pytest_deselected(items=[item for item in items if _file(item) not in chosen])
    items[:] = [item for item in items if _file(item) in chosen]
    _left_out.update(files - chosen)


def chosen_files(files: set[str], number: int, count: int) -> set[str]:
    return set(sorted(files)[number - 1 :: count])


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_LEFT] = sorted(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _left_out.update(getattr(node, "workeroutput", {}).get(_LEFT, ()))


def pytest_collection_finish(session: pytest.Session) -> None:
    _collected.update(item.nodeid for item in session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: list[str]) -> None:
    _collected.update(ids)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # A crash of xdist's worker is a report without a phase.
    if report.when not in {"setup", "call"}:
        _finished.add(report.nodeid)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if _left_out:
        _list(terminalreporter, f"{len(_left_out)} {_LEFT}", _left_out)
    if config.getoption("--part") is None:
        return
    not_run = _collected - _finished
    if not_run:
        _list(terminalreporter, f"{len(not_run)} tests were not run", not_run)
    elif not _collected:
        terminalreporter.write_line("no test was collected")


def _list(reporter: pytest.TerminalReporter, title: str, names: set[str]) -> None:
    reporter.write_line(f"{title}:")
    for name in sorted(names):
        reporter.write_line(f"  {name}")
