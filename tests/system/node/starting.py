"""`moldau start` where it is expected to exit on its own, with one clear line."""

import re
import subprocess
import sys
from dataclasses import dataclass

DEADLINE_S = 60
COMMAND = (sys.executable, "-m", "moldau")
# For a node that is alone; with `folder` to fill in.
PROPERTIES = """
process.roles=broker,controller
node.id=1
log.dirs={folder}/data
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers=127.0.0.1:0
"""


@dataclass(frozen=True)
class Ended:
    status: int
    output: str
    errors: str


def start_and_wait(*arguments: object) -> Ended:
    """A start that is expected to exit on its own."""
    command = [*COMMAND, "start", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False, text=True)
    return Ended(done.returncode, done.stdout, done.stderr)


def assert_refused(ended: Ended, complaint: str) -> None:
    assert ended.status != 0
    assert ended.output == ""
    assert len(ended.errors.splitlines()) == 1, ended.errors
    assert ended.errors.startswith("moldau")
    assert re.search(complaint, ended.errors), ended.errors
