"""`moldau start` refuses impossible starts in one clear line, leaves the documented files on the
disk, and finds everything at the next start.
"""

import json
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.proofs import proves
from support.running_node import RunningNode, free_port
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import (
    EARLIEST,
    commit,
    committed,
    config_of,
    create_topics,
    delete_records,
    find_coordinator,
    offset_at,
    produce,
    read_all,
    topics_of,
)
from system.node.starting import COMMAND, DEADLINE_S, PROPERTIES, assert_refused, start_and_wait

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.storage.directory.directory import CLEAN_STOP_FILE

META = "meta.properties"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a node that was stopped cleanly; for copying."""
    with RunningNode(tmp_path_factory.mktemp("stopped")) as node:
        node.start()
        with WireClient(node.address) as client:
            create_topics(client, {"kept": 1})
            produce(client, "kept", b"a", b"b")
        assert node.stop() == 0
        return node.log_folder


# Refusals: each gets a folder to prepare, and returns the arguments


def _a_file(folder: Path) -> list[object]:
    (folder / "data").write_text("a letter")
    return ["--dir", folder / "data"]


def _below_a_file(folder: Path) -> list[object]:
    (folder / "letter").write_text("a letter")
    return ["--dir", folder / "letter" / "data"]


def _strange_files(folder: Path) -> list[object]:
    (folder / "letter").write_text("a letter")
    return ["--dir", folder]


def _meta(content: bytes) -> Callable[[Path], list[object]]:
    def prepare(folder: Path) -> list[object]:
        (folder / META).write_bytes(content)
        return ["--dir", folder]

    return prepare


def _options(*arguments: object) -> Callable[[Path], list[object]]:
    return lambda folder: ["--dir", folder / "data", *arguments]


def _config(text: str, *arguments: object) -> Callable[[Path], list[object]]:
    def prepare(folder: Path) -> list[object]:
        path = folder / "server.properties"
        path.write_text(text.format(folder=folder))
        return ["--config", path, *arguments]

    return prepare


REFUSALS: dict[str, tuple[Callable[[Path], list[object]], str]] = {
    "directory is a file": (_a_file, "data: is a file, not a directory"),
    "directory below a file": (_below_a_file, "letter"),
    "directory of another application": (_strange_files, "holds files and is not a log directory"),
    "empty meta.properties": (_meta(b""), META),
    "meta.properties of another version": (_meta(b"version=9\ncluster.id=x\nnode.id=1\n"), META),
    "meta.properties that is not text": (_meta(b"\xff\x00\xfe" * 20), META),
    "meta.properties without a cluster": (_meta(b"version=1\nnode.id=1\n"), META),
    "meta.properties of another node": (
        _meta(b"version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=7\n"),
        "belongs to node 7",
    ),
    "unknown setting": (_options("--set", "log.retension.hours=1"), "mean log.retention.hours"),
    "setting that is not a number": (
        _options("--set", "log.retention.hours=two"),
        "Invalid value two",
    ),
    "setting out of bounds": (_options("--set", "num.partitions=0"), "num.partitions"),
    "setting without a value": (_options("--set", "log.retention.hours"), "NAME=VALUE"),
    "setting without a name": (_options("--set", "=1"), "NAME=VALUE"),
    "setting twice the same port": (
        _options("--set", "listeners=A://127.0.0.1:9092,A://127.0.0.1:9093"),
        "listeners",
    ),
    "port out of bounds": (_options("--port", 70_000), "70000"),
    "host that does not exist": (
        _options("--host", "no-such-host.invalid", "--insecure-listener", "PLAINTEXT"),
        "no-such-host",
    ),
    "host of all addresses": (_options("--host", "0.0.0.0"), "advertised.listeners"),
    "open to other machines": (
        _options("--host", "::", "--set", "advertised.listeners=PLAINTEXT://localhost:1"),
        "--insecure-listener PLAINTEXT",
    ),
    "no such listener": (
        _options("--insecure-listener", "PLANTEXT"),
        "PLANTEXT is not one of the listeners PLAINTEXT, CONTROLLER",
    ),
    "unknown log format": (_options("--log-format", "xml"), "xml"),
    "ephemeral with a directory": (_options("--ephemeral"), "--ephemeral"),
    "no such file": (lambda folder: ["--config", folder / "none.properties"], "No such file"),
    "file is a directory": (lambda folder: ["--config", folder], "directory"),
    "config and directory": (_config(PROPERTIES, "--dir", "elsewhere"), "--config"),
    "config and host": (_config(PROPERTIES, "--host", "::1"), "--host"),
    "config and ephemeral": (_config(PROPERTIES, "--ephemeral"), "--config"),
    "not formatted": (
        _config(PROPERTIES),
        "is not formatted; first run: moldau storage format --standalone -c ",
    ),
    "not formatted, with voters": (
        _config(
            PROPERTIES.replace(
                "controller.quorum.bootstrap.servers=127.0.0.1:0",
                "controller.quorum.voters=1@127.0.0.1:9093",
            )
        ),
        "moldau storage format -c ",
    ),
    "unknown setting in the file": (
        _config(PROPERTIES + "log.dirz=x\n", "--strict"),
        "log.dirz: unknown setting; did you mean log.dir",
    ),
    "no node id in the file": (_config(PROPERTIES.replace("node.id=1", "")), "node.id"),
    "only a broker": (
        _config(PROPERTIES.replace("broker,controller", "broker")),
        "process.roles|controller",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_impossible_start_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    prepare, complaint = REFUSALS[name]
    arguments = prepare(tmp_path)
    before = files_in(tmp_path)
    port = [] if "--port" in arguments or "--config" in arguments else ["--port", 0]
    assert_refused(start_and_wait(*arguments, *port), complaint)
    assert files_in(tmp_path) == before


def files_in(folder: Path) -> list[Path]:
    """A process takes a directory's lock before it reads its owner."""
    return sorted(path for path in folder.rglob("*") if path.name != ".lock")


def test_a_node_without_its_assertions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    assert_refused(start_and_wait("--dir", tmp_path / "data", "--port", 0), "python -O")
    assert not (tmp_path / "data").exists()


def test_directories_of_two_clusters_are_refused(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "one")
    assert start_ephemerally(tmp_path / "two") == 0
    both = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    ended = start_and_wait("--port", 0, "--set", f"log.dirs={both}")
    assert_refused(ended, "belongs to cluster")
    assert (tmp_path / "one" / CLEAN_STOP_FILE).exists()


def start_ephemerally(directory: Path) -> int:
    with RunningNode(directory.parent) as node:
        node.settings = {"log.dirs": str(directory)}
        return node.start().stop()


def test_a_second_start_on_one_directory_is_refused_and_the_first_continues(tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        node.start()
        ended = start_and_wait("--dir", node.log_folder, "--port", 0)
        assert_refused(ended, "locked by another node")
        with WireClient(node.address) as client:
            create_topics(client, {"still": 1})
            assert produce(client, "still", b"here") == (0, 0)
        assert node.stop() == 0


def test_a_port_in_use_is_refused_and_leaves_no_directory(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = start_and_wait("--dir", tmp_path / "data", "--port", port)
    assert_refused(ended, f"127.0.0.1:{port}: Address already in use")
    assert not (tmp_path / "data").exists()


def test_a_port_for_metrics_in_use_is_refused_and_leaves_no_directory(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = start_and_wait("--dir", tmp_path / "data", "--port", 0, "--metrics-port", port)
    assert_refused(ended, f"127.0.0.1:{port}: Address already in use")
    assert not (tmp_path / "data").exists()


def test_a_host_for_metrics_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    command = ["--dir", tmp_path / "data", "--port", 0, "--metrics-port", 0]
    ended = start_and_wait(*command, "--metrics-host", "192.0.2.1")
    assert_refused(ended, "/metrics cannot use 192.0.2.1:0: Cannot assign requested address")
    ended = start_and_wait(*command, "--metrics-host", "a..b")
    assert_refused(ended, "/metrics cannot use a..b:0: ")
    ended = start_and_wait(*command[:4], "--metrics-host", "127.0.0.1")
    assert_refused(ended, "--metrics-host needs --metrics-port")
    assert not (tmp_path / "data").exists()


def test_a_refused_start_keeps_the_clean_stop_of_the_one_before(
    stopped: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(stopped, tmp_path / "data")
    ended = start_and_wait("--dir", data, "--port", 0, "--set", "node.id=2")
    assert_refused(ended, "belongs to node 1, this is node 2")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert start_and_wait("--dir", data, "--port", taken.getsockname()[1]).status != 0
    assert (data / CLEAN_STOP_FILE).exists()


# Output and files


def test_the_ready_file_means_that_requests_are_taken(tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        ready = tmp_path / "ready"
        process = node.launch()
        # Left over from an earlier life: it must not be believed.
        ready.write_text("stale")

        def is_new() -> bool:
            assert process.poll() is None, node.errors
            return ready.exists() and ready.read_text() != "stale"

        wait_for(is_new, "the ready file", DEADLINE_S)
        assert ready.read_text() == f"{node.address}\n"
        with WireClient(node.address) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        assert node.stop() == 0
        assert not ready.exists()


def test_a_stale_ready_file_is_gone_before_anything_else(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("127.0.0.1:1\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = start_and_wait(
            "--dir", tmp_path / "data", "--port", taken.getsockname()[1], "--ready-file", ready
        )
    assert_refused(ended, "in use")
    assert not ready.exists()


def test_a_ready_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    ready = tmp_path / "missing" / "ready"
    ended = start_and_wait("--dir", tmp_path / "data", "--port", 0, "--ready-file", ready)
    assert ended.status != 0
    assert str(ready) in ended.errors.splitlines()[-1]
    assert "Traceback" not in ended.errors


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_an_ephemeral_node_leaves_no_files(how: signal.Signals, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ready = tmp_path / "ready"
    command = [*COMMAND, "start", "--ephemeral", "--port", "0", "--ready-file", str(ready)]
    with subprocess.Popen(
        command,
        env={"TMPDIR": str(scratch), "PATH": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            wait_for(lambda: ready.exists() or process.poll() is not None, "the ready file")
            with WireClient(ready.read_text().strip()) as client:
                create_topics(client, {"short-lived": 1})
                assert produce(client, "short-lived", b"a")[0] == 0
            assert any(scratch.iterdir())
            process.send_signal(how)
            _, errors = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert list(scratch.iterdir()) == []


@proves("moldau.metrics.port", "moldau.metrics.host")
def test_json_logs_are_json_and_metrics_have_a_port_of_their_own(tmp_path: Path) -> None:
    ready, logs = tmp_path / "ready", tmp_path / "logs"
    command = [*COMMAND, "start", "--dir", str(tmp_path / "data"), "--port", "0"]
    command += ["--log-format", "json", "--metrics-port", "0", "--ready-file", str(ready)]
    # An address of its own, too: nothing else listens there.
    command += ["--metrics-host", "127.0.0.3"]
    with (
        logs.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            wait_for(lambda: ready.exists() or process.poll() is not None, "the ready file")
            lines = [json.loads(line) for line in logs.read_text().splitlines()]
            assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
            (url,) = re.findall(r"http://127.0.0.3:\d+/metrics", logs.read_text())
            with pytest.raises(urllib.error.URLError):
                urllib.request.urlopen(url.replace("127.0.0.3", "127.0.0.1"))
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                assert b"moldau_" in answer.read()
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert output.count("\n") == 1
    for line in logs.read_text().splitlines():
        json.loads(line)


# Starting again


@dataclass(frozen=True)
class Seen:
    topics: Mapping[str, int]
    setting: str | None
    records: list[bytes | None]
    start: int
    offsets: Mapping[tuple[str, int], int]


def see(client: WireClient) -> Seen:
    wait_for(lambda: committed(client, "readers")[0] == 0, "the group")
    return Seen(
        topics=topics_of(client),
        setting=config_of(client, "kept", "retention.ms"),
        records=read_all(client, "kept"),
        start=offset_at(client, ("kept", 0), EARLIEST),
        offsets=committed(client, "readers")[1],
    )


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_restart_serves_existing_data(how: str, tmp_path: Path) -> None:
    with RunningNode(tmp_path) as node:
        node.start()
        with WireClient(node.address) as client:
            create_topics(client, {"kept": 2, "other": 3}, {"retention.ms": "123456789"})
            assert produce(client, "kept", b"a", b"b", b"c", b"d")[0] == 0
            assert delete_records(client, ("kept", 0), 2) == (0, 2)
            wait_for(lambda: find_coordinator(client, "readers") == 0, "the coordinator")
            wait_for(lambda: commit(client, "readers", ("kept", 0), 3) == 0, "the commit")
            before = see(client)
        assert before.records == [b"c", b"d"]
        assert before.offsets == {("kept", 0): 3}
        for _ in range(2):
            if how == "stopped":
                assert node.stop() == 0
            else:
                node.kill()
            node.start()
            with WireClient(node.address) as client:
                assert see(client) == before
        with WireClient(node.address) as client:
            assert produce(client, "kept", b"e") == (0, 4)
            assert commit(client, "readers", ("kept", 0), 5) == 0
        assert node.stop() == 0


@proves("moldau.accept.damage")
def test_a_damaged_log_refuses_work_until_the_operator_decides(
    stopped: Path, tmp_path: Path
) -> None:
    with RunningNode(tmp_path) as node:
        shutil.copytree(stopped, node.log_folder)
        (node.log_folder / CLEAN_STOP_FILE).unlink()
        (log,) = (node.log_folder / "kept-0").glob("*.log")
        log.write_bytes(log.read_bytes()[:-1])

        node.start()
        assert "kept-0 is damaged and refuses all requests" in node.errors
        with WireClient(node.address) as client:
            assert produce(client, "kept", b"c")[0] == ErrorCode.KAFKA_STORAGE_ERROR
            create_topics(client, {"other": 1})
            assert produce(client, "other", b"a") == (0, 0)
        assert node.stop() == 0

        node.settings = {"moldau.accept.damage": "true"}
        node.start()
        with WireClient(node.address) as client:
            assert produce(client, "kept", b"c") == (0, 0)
            assert read_all(client, "kept") == [b"c"]
        assert node.stop() == 0
        assert list((node.log_folder / "kept-0" / "quarantine").iterdir())


def test_a_formatted_directory_is_served_with_its_properties(tmp_path: Path) -> None:
    port = free_port()
    path = tmp_path / "server.properties"
    text = PROPERTIES.replace("PLAINTEXT://127.0.0.1:0", f"PLAINTEXT://127.0.0.1:{port}")
    path.write_text(text.format(folder=tmp_path) + "offsets.topic.replication.factor=1\n")
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qg"
    command = [*COMMAND, "storage", "format", "--standalone", "-t", cluster_id, "-c", str(path)]
    subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=True)
    with RunningNode(tmp_path, config=path, port=port, settings={}) as node:
        node.start()
        assert f"cluster {cluster_id}" in node.output
        with WireClient(node.address) as client:
            create_topics(client, {"kept": 1})
            assert produce(client, "kept", b"a") == (0, 0)
        assert node.stop() == 0


def test_plain_asyncio_does_where_uvloop_is_missing(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "uvloop.py").write_text("raise ImportError\n")
    with RunningNode(tmp_path, prefix=("env", f"PYTHONPATH={hidden}")) as node:
        node.start()
        with WireClient(node.address) as client:
            create_topics(client, {"kept": 1})
            assert produce(client, "kept", b"a") == (0, 0)
            assert read_all(client, "kept") == [b"a"]
        assert node.stop() == 0


def test_a_node_starts_with_unknown_settings_and_names_them(tmp_path: Path) -> None:
    """Real files contain settings of plug-ins, vendors and earlier releases."""
    arguments = _config(PROPERTIES + "vendor.balancer=on\nnum.partitons=3\n")(tmp_path)
    command = [*COMMAND, "storage", "format", "--standalone", "-t", "AAAAAAAAAAAAAAAAAAAAAA"]
    command += map(str, arguments)
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    with RunningNode(tmp_path, {}, config=tmp_path / "server.properties") as node:
        node.start()
        assert "vendor.balancer: unknown setting\n" in node.errors
        assert "num.partitons: unknown setting; did you mean num.partitions?" in node.errors
