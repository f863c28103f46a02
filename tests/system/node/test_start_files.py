"""Properties files that a start refuses, and its advice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.running_node import RunningNode
from system.node.starting import COMMAND, DEADLINE_S, PROPERTIES, start_and_wait


def test_the_suggested_format_command_can_be_pasted(tmp_path: Path) -> None:
    file = tmp_path / "a server.properties"
    file.write_text(PROPERTIES.format(folder=tmp_path))
    command = start_and_wait("--config", file).errors.partition("first run: ")[2]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "PATH": path},
        check=False,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, (command, done.stderr)
    with RunningNode(tmp_path, {}, config=file) as node:
        node.start()


@pytest.mark.parametrize("command", ["start", "storage format -t AAAAAAAAAAAAAAAAAAAAAA"])
def test_unknown_settings_are_named_before_a_refusal(tmp_path: Path, command: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"zookeeper.connect=here:2181\nbroker.id=0\nlog.dirs={tmp_path}/data\n")
    done = subprocess.run(
        [*COMMAND, *command.split(), "--config", str(file)],
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
        text=True,
    )
    assert done.returncode == 1
    warning, refusal = done.stderr.splitlines()
    assert "zookeeper.connect: unknown setting; Kafka 4 has removed it" in warning
    assert 'Missing required configuration "process.roles"' in refusal
    assert "Kafka 3 with ZooKeeper" in refusal


def test_errors_of_the_system_are_shown_without_their_number(tmp_path: Path) -> None:
    ended = start_and_wait("--dir", tmp_path / "data", "--port", 0, "--ready-file", tmp_path)
    assert ended.errors == f"moldau: {tmp_path}: Is a directory\n"
