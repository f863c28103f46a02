"""The commands that the README shows exist. Its examples are run in tests/docs."""

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_readmes_commands_exist() -> None:
    targets = (Path(__file__).parents[2] / "Makefile").read_text()
    named = set(re.findall(r"^make (\w+)", README, re.MULTILINE))
    assert named == {"run", "test"}
    assert all(f"\n{name}:" in targets for name in named)
