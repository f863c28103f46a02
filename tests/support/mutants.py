"""Mistakes planted into a copy of the package: a test that would not find them proves little."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import moldau

TESTS = Path(__file__).parents[1]


class Mutant(NamedTuple):
    name: str
    module: str
    """Below `src/moldau`, without its ending."""
    was: str
    becomes: str


def finding(mutant: Mutant, program: str, folder: Path) -> str:
    """The output of `program`, run with the mistake. `folder` gets the copy."""
    package = folder / "moldau"
    shutil.copytree(Path(moldau.__file__).parent, package, symlinks=True)
    source = package / f"{mutant.module}.py"
    text = source.read_text()
    assert text.count(mutant.was) == 1, "the code has changed: adapt the mutant"
    source.write_text(text.replace(mutant.was, mutant.becomes))
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(TESTS)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()
