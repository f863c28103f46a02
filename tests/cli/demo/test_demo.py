"""The demo runs a real node and the real commands."""

import signal
import subprocess
import sys
from pathlib import Path

from cli.command import moldau


def besides_delays(errors: str) -> str:
    """The node notes it in its log if a busy machine delays a request."""
    lines = errors.splitlines(keepends=True)
    return "".join(line for line in lines if "blocked all other requests for" not in line)


def test_the_demo_shows_its_commands_and_keeps_their_results(tmp_path: Path) -> None:
    for _ in range(2):
        ran = moldau("demo", "--commands", "--once", "--port", "0", "--dir", tmp_path)
        assert (ran.status, besides_delays(ran.errors)) == (0, "")
        assert "$ moldau topics create river --partitions 3" in ran.output
        assert "3 records written to river" in ran.output
        assert "vltava" in ran.output
    check = moldau("dump", "--check", tmp_path / "node")
    assert (check.status, check.errors) == (0, "no problems found\n")


def test_without_spark_the_demo_explains_that_and_shows_commands(tmp_path: Path) -> None:
    """As on a machine that has only `pip install moldau`."""
    blocked = tmp_path / "without"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import sys\nfor name in ('pyspark', 'pandas', 'yaml'):\n    sys.modules[name] = None\n"
    )
    ran = moldau(
        "demo", "--once", "--port", "0", "--dir", tmp_path / "demo", PYTHONPATH=str(blocked)
    )
    assert (ran.status, besides_delays(ran.errors)) == (0, "")
    assert ran.lines[0] == (
        "Spark is not installed; install it with pip install 'moldau[spark]'. "
        "The demo shows only commands, and no pipeline."
    )
    assert "vltava" in ran.output


def test_the_demo_stays_up_until_it_is_interrupted(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "moldau", "demo", "--commands", "--port", "0", "--dir", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if "bootstrap.servers=" in line:
            break
    assert "The node runs until you press Ctrl-C" in shown, shown
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "stopped\n")
