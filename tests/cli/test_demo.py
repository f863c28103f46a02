"""The demo keeps what it says: a real node, used with the real commands."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from cli.command import moldau


def test_the_demo_shows_what_it_does_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ran = moldau("demo", "--once", "--port", "0", TMPDIR=str(tmp_path))
    assert (ran.status, ran.errors) == (0, "")
    assert "$ moldau topics create river --partitions 3" in ran.output
    assert "3 records written to river" in ran.output
    assert "vltava" in ran.output
    assert "total lag: 0" in ran.output
    assert list(tmp_path.iterdir()) == []


def test_a_kept_demo_is_a_healthy_log_directory(tmp_path: Path) -> None:
    target = tmp_path / "demo"
    assert moldau("demo", "--once", "--port", "0", "--dir", target).status == 0
    check = moldau("dump", "--check", target)
    assert (check.status, check.errors) == (0, "no problems found\n")


def test_the_demo_stays_up_until_it_is_interrupted(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "moldau", "demo", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if "bootstrap.servers=" in line:
            break
    assert "The node stays up until you press Ctrl-C" in shown, shown
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "stopped\n")
    assert list(tmp_path.iterdir()) == []
