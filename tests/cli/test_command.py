"""The command itself: version, help, completion, usage errors, pipes and interrupts."""

import os
import pty
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from cli.command import COMMAND, moldau, moldau_here
from storage.samples import unpack


def test_the_version_names_python_and_the_loops() -> None:
    ran = moldau("--version")
    assert ran.status == 0
    assert f"moldau {version('moldau')}, Python 3." in ran.output
    assert "compiled loops: " in ran.output


def test_the_version_reports_that_the_python_twins_run() -> None:
    assert "compiled loops: no (Python twins)" in moldau("--version", MOLDAU_PURE_PYTHON="1").output


def test_version_imports_no_command_line_library() -> None:
    script = "import sys; from moldau.cli import run; run(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    assert "moldau.compiled" in loaded
    assert not {"typer", "rich", "moldau.storage.inspection"} & set(loaded)


def test_help_of_one_command_loads_no_other_and_no_client() -> None:
    script = "import sys; from moldau.cli import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    assert "moldau.cli.app" in loaded
    assert not {"asyncio", "moldau.client", "moldau.broker", "moldau.cli.topics.command"} & set(
        loaded
    )


def test_a_list_in_a_pipe_loads_neither_tables_nor_the_broker() -> None:
    script = (
        "import sys; from moldau.cli import run; run(['topics', 'list', '-b', '127.0.0.1:1']);"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    assert "moldau.client.cluster.cluster" in loaded
    assert not {"rich.table", "uvloop", "moldau.broker", "moldau.storage.log.log"} & set(loaded)


def test_help_names_the_commands_and_dumps_help_has_examples() -> None:
    ran = moldau("--help")
    assert ran.status == 0
    assert "dump" in ran.output
    assert "demo" in ran.output
    ran = moldau("dump", "--help", COLUMNS="120")
    assert ran.status == 0
    assert "moldau dump --check" in ran.output
    assert "--records" in ran.output


@pytest.mark.parametrize("arguments", [(), ("dump",)])
def test_no_arguments_at_all_show_the_help(arguments: tuple[str, ...]) -> None:
    ran = moldau_here(*arguments)
    assert ran.status == 2
    assert "Usage: moldau" in ran.output + ran.errors
    assert "Try" not in ran.errors


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_produced(shell: str) -> None:
    ran = moldau(_MOLDAU_COMPLETE=f"source_{shell}")
    assert ran.status == 0
    assert "_MOLDAU_COMPLETE" in ran.output


def test_completion_offers_the_commands() -> None:
    ran = moldau(
        _MOLDAU_COMPLETE="complete_bash",
        COMP_WORDS="moldau d",
        COMP_CWORD="1",
    )
    assert {"dump", "demo"} <= set(ran.output.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("dance",),
        ("dump", "--decode", "tea-leaves", "x"),
        ("dump", "--limit", "0", "x"),
        ("dump", "--limit", "many", "x"),
        ("dump", "--no-such-option", "x"),
    ],
)
def test_a_usage_error_is_one_line_with_status_2(arguments: tuple[str, ...]) -> None:
    ran = moldau_here(*arguments)
    assert ran.status == 2
    assert ran.output == ""
    assert len(ran.errors.splitlines()) == 1
    assert "--help" in ran.errors


def test_a_missing_file_is_an_error_of_one_line_with_status_2() -> None:
    ran = moldau("dump", "/no/such/file.log")
    assert ran.status == 2
    assert ran.output == ""
    assert ran.errors == "moldau dump: /no/such/file.log: No such file or directory\n"


def test_the_other_files_are_shown_although_one_is_missing(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n3 17\n")
    ran = moldau("dump", "missing.log", "leader-epoch-checkpoint", cwd=tmp_path)
    assert ran.status == 2
    assert "epoch: 3 startOffset: 17" in ran.lines
    assert "missing.log" in ran.errors


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("sample")) / "compacted-0"


@pytest.mark.parametrize("output", ["plain", "json", "table"])
def test_a_reader_that_leaves_early_is_not_an_error(partition: Path, output: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "dump", "--records", "--format", output, str(partition)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        errors = running.stderr.read()
    assert errors == b""
    # The status that a shell reports for a program ended by a closed pipe.
    assert running.returncode == 141


def test_an_interrupt_is_quiet(partition: Path) -> None:
    # A shell that runs the tests in the background has them ignore interrupts.
    heeding = ["env", "--default-signal=INT"]
    with subprocess.Popen(
        [*heeding, *COMMAND, "dump", "--records", str(partition.with_name("idempotent-0"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        # Two megabytes do not fit into the pipe: it is still writing when the signal comes.
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate()
    assert errors == b""
    assert running.returncode == 130


def test_a_terminal_gets_a_table_in_colour_unless_it_wants_none(partition: Path) -> None:
    def on_a_terminal(**environment: str) -> str:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*COMMAND, "dump", str(partition / "00000000000000000000.log")],
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "120"} | environment,
        ) as running:
            os.close(theirs)
            printed = b""
            while True:
                try:
                    piece = os.read(ours, 65536)
                except OSError:
                    break
                if not piece:
                    break
                printed += piece
        os.close(ours)
        assert running.returncode == 0
        return printed.decode()

    coloured = on_a_terminal()
    assert "largest timestamp" in coloured
    assert "\x1b[1;36m" in coloured
    assert "\x1b[1;36m" not in on_a_terminal(NO_COLOR="1")
