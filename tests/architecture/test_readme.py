"""What the README shows works."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda code: code.splitlines()[0][:50])
def test_the_readmes_examples_run(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {})


def test_the_readmes_commands_exist() -> None:
    targets = (Path(__file__).parents[2] / "Makefile").read_text()
    named = set(re.findall(r"^make (\w+)", README, re.MULTILINE))
    assert named == {"run", "test"}
    assert all(f"\n{name}:" in targets for name in named)
