"""`--part 2/3`: every third of the selected test files, from the second on. CI runs the long suites
in parts, another one with each commit; the summary lists the files left for other runs.
"""

from typing import Any

import pytest

_LEFT = "files left for other runs"
_left_out: set[str] = set()


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
    """Runs after the selection by markers: parts are parts of the selected tests."""
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_out:
        terminalreporter.write_line(f"{len(_left_out)} {_LEFT}:")
        for name in sorted(_left_out):
            terminalreporter.write_line(f"  {name}")
