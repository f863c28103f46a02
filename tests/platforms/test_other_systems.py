"""macOS and Windows as far as Linux can imitate them: the features they lack are removed before
Moldau is imported (`as_on_macos.py`, `as_on_windows.py`).
"""

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.node.startup import raise_descriptor_limit
from moldau.testing import broker

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "NO_COLOR": "1"}
MACOS_QUICK = (
    "tests/storage/disk/test_filesystem.py",
    "tests/storage/log/test_flushing.py",
    "tests/storage/log/test_log_append.py",
    "tests/storage/segment/test_open_files.py",
    "tests/testing/test_broker.py",
)
MACOS_ALL = ("tests/storage", "tests/broker", "tests/system/node", "tests/testing")
WINDOWS_SUITES = ("tests/third_party/test_our_clients.py", "tests/net")
WINDOWS_CLIENTS_QUICK = (
    "tests/client/admin/test_admin.py",
    "tests/client/consumer/test_aio_consumer.py",
    "tests/client/consumer/test_groups.py",
    "tests/client/producer/test_aio_producer.py",
    "tests/client/producer/test_transactional_producer.py",
)
NEEDS_A_CACHE = "tests/client/cluster/test_typed_arguments.py::test_mypy"
WINDOWS_CASES = "tests/platforms/windows_cases.py"

A_SYNC = """
from platforms import as_on_macos
import os
from pathlib import Path
{before}
from moldau.storage.disk.filesystem import DiskFileSystem
filesystem = DiskFileSystem()
file = filesystem.open(Path({path!r}), create=True)
file.append([b"one", b"two"])
file.sync()
filesystem.sync_directory(Path({path!r}).parent)
print(as_on_macos.full_syncs, file.read(0, 6))
"""
A_REFUSED_SYNC = """
from platforms import as_on_macos
import os
from pathlib import Path
from moldau.storage.disk.filesystem import DiskFileSystem
plain_syncs = []
os.fsync = plain_syncs.append
as_on_macos.refusal = {number}
file = DiskFileSystem().open(Path({path!r}), create=True)
try:
    file.sync()
except OSError as error:
    print(error.errno)
else:
    print(len(plain_syncs), "plain syncs")
"""
CHILDREN = """
from platforms import as_on_macos
import sys
from pathlib import Path
from system.node.questions import create_topics, produce
from support.running_node import RunningNode
from support.wire_client import WireClient
from moldau.testing import broker
with RunningNode(Path(sys.argv[1])).start() as node, WireClient(node.address) as client:
    create_topics(client, {"synced": 1})
    assert produce(client, "synced", b"a") == (0, 0)
    print(node.process.pid)
with broker(process=True) as other, WireClient(other.bootstrap) as client:
    create_topics(client, {"synced": 1})
    assert produce(client, "synced", b"a") == (0, 0)
    print(other.pid)
"""
FIXTURES_USED = """
def test_broker(moldau_broker): pass
def test_topic(moldau_topic): pass
"""
OTHER_SYNCS = """
from platforms import as_on_macos
from pathlib import Path
from moldau.core.connectors.http_polling import PollPosition, digest_of_body
from moldau.pipelines.run.run_folder import RunFolder
from moldau.connectors.http.answers import KeptAnswers
RunFolder(Path({folder!r})).write("status.json", {{}})
print(as_on_macos.full_syncs)
KeptAnswers({folder!r}).keep(PollPosition(poll=1, digest=digest_of_body(b"")), b"")
print(as_on_macos.full_syncs)
"""
AN_ANSWER = """
from platforms import as_on_windows
from moldau.core.connectors.http_polling import PollPosition, digest_of_body
from moldau.connectors.http.answers import KeptAnswers
answers = KeptAnswers({folder!r})
answers.keep(PollPosition(poll=1, digest=digest_of_body(b"rows")), b"rows")
print(answers.body_of(1))
"""
A_COMMAND = """
from platforms import as_on_windows
from moldau.cli import main
main()
"""


def run(*arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**ENVIRONMENT, **more},
        capture_output=True,
        text=True,
        check=False,
    )


def suite(plugin: str, *tests: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin, *tests, **more)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The address of a node that runs on Linux."""
    with broker(process=True) as running:
        yield running.bootstrap


def moldau_on_windows(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run("-c", A_COMMAND, *arguments)


@pytest.mark.parametrize("before", ["", "os.fdatasync = os.fsync"])
def test_a_sync_on_macos_goes_through_the_cache_of_the_drive(tmp_path: Path, before: str) -> None:
    done = run("-c", A_SYNC.format(path=str(tmp_path / "file"), before=before))
    assert done.stdout == "2 b'onetwo'\n", done.stderr


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOTTY, errno.EINVAL])
def test_a_file_system_without_full_sync_gets_a_plain_one(tmp_path: Path, number: int) -> None:
    done = run("-c", A_REFUSED_SYNC.format(path=str(tmp_path / "file"), number=number))
    assert done.stdout == "1 plain syncs\n", done.stderr


def test_a_full_sync_that_fails_is_not_retried_as_a_plain_one(tmp_path: Path) -> None:
    done = run("-c", A_REFUSED_SYNC.format(path=str(tmp_path / "file"), number=errno.EIO))
    assert done.stdout == f"{errno.EIO}\n", done.stderr


def test_processes_started_on_macos_sync_through_the_cache_of_the_drive(tmp_path: Path) -> None:
    noted = tmp_path / "syncs"
    done = run("-c", CHILDREN, str(tmp_path), FULL_SYNCS_FILE=str(noted))
    assert done.returncode == 0, done.stderr
    lines = noted.read_text().splitlines()
    for pid in done.stdout.split():
        assert any(line.startswith(f"{pid} ") and "/synced-0/" in line for line in lines), lines


def test_files_of_pipelines_are_synced_through_the_cache_of_the_drive_too(tmp_path: Path) -> None:
    done = run("-c", OTHER_SYNCS.format(folder=str(tmp_path)))
    assert done.stdout.split() == ["1", "3"], done.stderr


@pytest.mark.parametrize(("soft", "then"), [(256, 10_240), (20_000, 20_000)])
def test_macos_grants_fewer_descriptors_than_it_reports(
    monkeypatch: pytest.MonkeyPatch, soft: int, then: int
) -> None:
    limits = [(soft, resource.RLIM_INFINITY)]

    def set_limits(_kind: int, wanted: tuple[int, int]) -> None:
        if not 0 <= wanted[0] <= 10_240:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    raise_descriptor_limit()
    assert limits[-1] == (then, resource.RLIM_INFINITY)


def test_logs_and_nodes_work_with_what_macos_has() -> None:
    done = suite("platforms.as_on_macos", "-x", *MACOS_QUICK)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_all_of_storage_and_nodes_works_with_what_macos_has() -> None:
    done = suite("platforms.as_on_macos", *MACOS_ALL)
    assert done.returncode == 0, done.stdout[-4000:]


def test_clients_work_with_what_windows_has(bootstrap: str) -> None:
    done = suite("platforms.as_on_windows", "-x", *WINDOWS_SUITES, KAFKA_UNDER_TEST=bootstrap)
    assert done.returncode == 0, done.stdout[-4000:]


def test_groups_transactions_and_admin_work_with_what_windows_has() -> None:
    done = suite("platforms.broker_elsewhere", "-x", *WINDOWS_CLIENTS_QUICK)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_all_client_suites_pass_with_what_windows_has() -> None:
    done = suite("platforms.broker_elsewhere", "tests/client", f"--deselect={NEEDS_A_CACHE}")
    assert done.returncode == 0, done.stdout[-4000:]


def test_schemas_and_the_spark_source_work_with_what_windows_has(bootstrap: str) -> None:
    done = suite("platforms.as_on_windows", WINDOWS_CASES, KAFKA_UNDER_TEST=bootstrap)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "4 passed" in done.stdout, done.stdout


def test_client_commands_work_with_what_windows_has(bootstrap: str, tmp_path: Path) -> None:
    def shown(command: str) -> str:
        done = moldau_on_windows(*command.split(), "-b", bootstrap)
        assert done.returncode == 0, done.stderr
        return done.stdout

    lines = tmp_path / "lines"
    lines.write_text('{"key":"k","value":"v"}\n{"value":"w"}\n')
    shown("topics create win")
    shown(f"produce win --json --file {lines}")
    consumed = shown("consume win --json --group readers --from beginning").splitlines()
    assert [json.loads(line)["value"] for line in consumed] == ["v", "w"]
    assert "win" in shown("topics describe win")
    assert "readers" in shown("groups list")
    assert "win" in shown("groups describe readers")
    assert "win" in shown("configs list topic")
    assert bootstrap in shown("cluster describe")
    assert "win" in shown("offsets win")
    assert "win" in shown("logdirs")
    shown("transactions list")
    shown("records delete win --before 1 --yes")
    assert json.loads(shown("bench produce --records 10 --json"))


@pytest.mark.parametrize("command", ["start", "demo", "storage", "dump", "pipeline"])
def test_commands_that_need_posix_fail_with_one_line_on_windows(command: str) -> None:
    refused = moldau_on_windows(command, "info")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"moldau: moldau {command} needs Linux or macOS; on Windows run it in WSL\n"
    )


@pytest.mark.parametrize(
    "module",
    ["moldau", "moldau.aio", "moldau.admin", "moldau.schemas", "moldau.spark.source.data_source"],
)
def test_modules_of_clients_can_be_imported_on_windows(module: str) -> None:
    # Clients are loaded by name, which the star import does.
    done = run("-c", f"from platforms import as_on_windows; from {module} import *")
    assert done.returncode == 0, done.stderr


def test_http_responses_are_stored_with_what_windows_has(tmp_path: Path) -> None:
    done = run("-c", AN_ANSWER.format(folder=str(tmp_path / "answers")))
    assert done.stdout == "b'rows'\n", done.stderr


def test_the_fixtures_name_their_requirement_on_windows(tmp_path: Path) -> None:
    tests = tmp_path / "test_used.py"
    tests.write_text(FIXTURES_USED)
    done = suite("platforms.as_on_windows", "--rootdir", str(tmp_path), str(tests))
    line = "OSError: a broker for tests needs Linux or macOS; on Windows run it in WSL"
    # The summary at the end repeats them, cut to the terminal's width or, in CI, in full.
    raised = [text for text in done.stdout.splitlines() if text.startswith("E ")]
    assert [text.split(maxsplit=1)[1] for text in raised] == [line, line], done.stdout
