"""A node reaches its machine only through seams, so that a simulation can put another there: the
clock, chance, the network of its host, the file system, and the event loop for threads and outgoing
connections.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "moldau"
NODE = ("broker", "core", "net", "storage")
# Attributes of modules that go round a seam.
REACHES_OUT = frozenset(
    {
        "os.urandom", "random.random", "random.randbytes", "secrets.token_bytes", "uuid.uuid1",
        "uuid.uuid4", "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns",
        "time.sleep", "socket.socket", "socket.create_server", "socket.getaddrinfo",
        "socket.getfqdn", "socket.gethostname", "threading.Thread", "threading.Event",
        "threading.Timer", "shutil.disk_usage",
    }
)  # fmt: skip
PAST_THE_LOOP = ("threads.submit", "threads.map", "thread.submit", "workers.submit")
# By file, with what they use and why.
ALLOWED: dict[str, tuple[list[str], str]] = {
    "net/clock.py": (["time.monotonic_ns", "time.time_ns"], "the clock"),
    "net/network.py": (
        ["socket.getaddrinfo", "socket.getfqdn", "socket.socket"],
        "the network of the machine",
    ),
    "net/request_channel.py": (
        ["socket.getaddrinfo"],
        "when the interpreter ends and the loop can resolve no name any more",
    ),
    "storage/disk/filesystem.py": (["shutil.disk_usage"], "the file system of the machine"),
    "storage/disk/reserve.py": (["os.urandom"], "content that is never read"),
    "broker/metrics/server.py": (
        ["socket.create_server", "socket.getaddrinfo", "socket.socket"],
        "a simulated node serves no metrics",
    ),
    "broker/replicas/flush_rounds.py": (
        ["map", "time.sleep"],
        "`Host.do_all` replaces the map; the sleep gives up the interpreter lock",
    ),
    "broker/replicas/log_cleaning.py": (
        ["threading.Event"],
        "the pace of compaction, which waits only below log.cleaner.io.max.bytes.per.second",
    ),
}


def uses(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name in REACHES_OUT:
                yield name
            elif name.endswith(PAST_THE_LOOP):
                yield node.attr


def test_a_node_goes_through_its_seams() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): sorted(Counter(uses(path)))
        for folder in NODE
        for path in sorted((SOURCE / folder).rglob("*.py"))
    }
    assert {name: used for name, used in found.items() if used} == {
        name: used for name, (used, _) in ALLOWED.items()
    }
