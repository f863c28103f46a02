"""kcat, often the first tool that people try: produce, consume, list, query, and a balanced
consumer.
"""

import json
import subprocess
from dataclasses import dataclass

import pytest
from interop.apache import ApacheUnavailableError, require_tool
from interop.missing import give_up
from interop.peers.servers import Server

pytestmark = pytest.mark.interop

RUN_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Kcat:
    program: str
    address: str

    def run(self, *arguments: str, stdin: str = "") -> str:
        run = subprocess.run(
            [self.program, "-b", self.address, "-X", "broker.address.family=v4", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        assert run.returncode == 0, run
        return run.stdout


@pytest.fixture(scope="module")
def kcat(server: Server) -> Kcat:
    try:
        return Kcat(require_tool("kcat"), server.address)
    except ApacheUnavailableError as reason:
        give_up(reason, "the smoke test with kcat needs kcat")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_reads_what_kcat_writes(kcat: Kcat, name: str, codec: str) -> None:
    lines = "".join(f"key{number}:value{number}\n" for number in range(100))
    place = ["-t", name, "-p", "0"]
    kcat.run("-P", *place, "-K:", "-z", codec, "-H", "who=kcat", stdin=lines)
    form = ["-f", "%k:%s\n"]
    assert kcat.run("-C", *place, "-o", "beginning", "-e", "-q", *form) == lines
    last = kcat.run("-C", *place, "-o", "-1", "-e", "-q", "-J")
    message = json.loads(last)
    assert (message["offset"], message["key"], message["payload"]) == (99, "key99", "value99")
    assert message["headers"] == ["who", "kcat"]


def test_the_cluster_is_listed(kcat: Kcat, server: Server, name: str) -> None:
    kcat.run("-P", "-t", name, "-p", "0", stdin="value\n")
    listed = json.loads(kcat.run("-L", "-J"))
    assert [(each["id"], each["name"]) for each in listed["brokers"]] == [(1, server.address)]
    assert listed["controllerid"] == 1
    (topic,) = [each for each in listed["topics"] if each["topic"] == name]
    assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2, 3]
    assert all(each["leader"] == 1 for each in topic["partitions"])
    assert all(each["replicas"] == each["isrs"] == [{"id": 1}] for each in topic["partitions"])


def test_offsets_are_queried_by_time(kcat: Kcat, name: str) -> None:
    kcat.run("-P", "-t", name, "-p", "2", stdin="one\ntwo\n")
    time_ms = int(kcat.run("-C", "-t", name, "-p", "2", "-o", "1", "-e", "-q", "-f", "%T"))
    for moment, offset in ((0, 0), (-2, 0), (-1, 2), (time_ms + 100_000, -1)):
        answer = kcat.run("-Q", "-t", f"{name}:2:{moment}")
        assert answer.split() == [name, "[2]", "offset", str(offset)]


def test_a_balanced_consumer_gets_every_partition(kcat: Kcat, name: str) -> None:
    for partition in range(4):
        kcat.run("-P", "-t", name, "-p", str(partition), stdin=f"value{partition}\n")
    options = ["-X", "auto.offset.reset=earliest", "-c", "4", "-q", "-f", "%p %s\n"]
    first = kcat.run("-G", name, *options, name)
    expected = [f"{partition} value{partition}" for partition in range(4)]
    assert sorted(first.splitlines()) == expected
    kcat.run("-P", "-t", name, "-p", "1", stdin="later\n")
    again = ["-X", "auto.offset.reset=earliest", "-c", "1", "-q", "-f", "%p %s\n"]
    assert kcat.run("-G", name, *again, name) == "1 later\n"


def test_kcat_writes_a_transaction(kcat: Kcat, name: str) -> None:
    """With the librdkafka of its distribution, which is years old."""
    place = ["-t", name, "-p", "0"]
    for transaction in range(3):
        lines = "".join(f"{transaction}-{number}\n" for number in range(10))
        kcat.run("-P", *place, "-X", f"transactional.id={name}", stdin=lines)
    view = ["-o", "beginning", "-e", "-q", "-f", "%o %s\n", "-X", "isolation.level=read_committed"]
    # Each transaction ends with a marker, which takes an offset.
    wanted = [f"{11 * n + place} {n}-{place}" for n in range(3) for place in range(10)]
    assert kcat.run("-C", *place, *view).splitlines() == wanted


def test_a_null_value_is_a_tombstone(kcat: Kcat, name: str) -> None:
    kcat.run("-P", "-t", name, "-p", "0", "-K:", "-Z", stdin="key:\n")
    shown = kcat.run("-C", "-t", name, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%K %S\n")
    assert shown == "3 -1\n"
