"""Every scenario in scenarios/ has the expected results."""

from pathlib import Path

import pytest
from core.groups.scenario import play

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    expected, happened = play(path)
    assert happened == expected
