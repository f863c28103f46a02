"""How long does one request block a node's event loop? For every API, with the largest requests
that are cheap to send.

    python benchmarks/loop_holds.py [--only TEXT] [--partitions 1000]

The node runs in a process of its own, in plain asyncio, where every callback of the loop is timed.
Shown for each request: the longest callback in processor time, which other programs on the machine
change less than the clock, and how much of it was garbage collection; then by the clock; its name.
"""

import argparse
import asyncio
import gc
import multiprocessing
import select
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from kept_results import keep

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from support.large_requests import Existing, large_requests
from support.wire_client import HungUpError, WireClient, create_topic

from moldau.broker.node.garbage_collection import GarbageCollection
from moldau.cli.node.start import THREAD_TURN_S
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.testing import thread_broker

TOPIC, GROUP = "wide", "g"
COMMIT_VERSION = 9
FIND_VERSION = 4
TRIES = 300


class Hold(NamedTuple):
    cpu_ms: float = 0.0
    collecting_ms: float = 0.0
    """Part of `cpu_ms`."""
    clock_ms: float = 0.0
    what: str = ""


class Watch:
    def __init__(self) -> None:
        self.longest = Hold()
        self._collection_began_s = 0.0
        self._collecting_s = 0.0
        gc.callbacks.append(self._collecting)

    def _collecting(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began_s = time.thread_time()
        else:
            self._collecting_s += time.thread_time() - self._collection_began_s

    def install(self) -> None:
        handle_class: Any = asyncio.events.Handle
        run = handle_class._run

        def timed(handle: Any) -> None:
            self._collecting_s = 0.0
            began_cpu_s, began_s = time.thread_time(), time.perf_counter()
            run(handle)
            cpu_ms = (time.thread_time() - began_cpu_s) * 1000
            clock_ms = (time.perf_counter() - began_s) * 1000
            if cpu_ms > self.longest.cpu_ms:
                what = _name_of(handle._callback)
                self.longest = Hold(cpu_ms, self._collecting_s * 1000, clock_ms, what)

        handle_class._run = timed


def _name_of(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()}"
    return getattr(callback, "__qualname__", None) or "a timer"


def run_node(pipe: Connection) -> None:
    module: Any = thread_broker
    module.new_event_loop = asyncio.new_event_loop
    sys.setswitchinterval(THREAD_TURN_S)
    watch = Watch()
    watch.install()
    broker = thread_broker.ThreadBroker({})
    broker.start()
    broker.call(GarbageCollection(broker.clock.shifted).start)
    pipe.send(broker.bootstrap)
    while pipe.recv():
        # In the loop: the callback that has just answered is over then.
        pipe.send(broker.call(lambda: watch.longest))
        watch.longest = Hold()
    broker.close()


def prepare(address: str, partitions: int) -> Existing:
    topic_id = create_topic(address, TOPIC, partitions)
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        for index in range(partitions)
    ]
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=offsets)
    with WireClient(address) as client:
        for _ in range(TRIES):
            client.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), FIND_VERSION)
            answer = client.ask(OffsetCommitRequest(group_id=GROUP, topics=[topic]), COMMIT_VERSION)
            if not answer.topics[0].partitions[0].error_code:
                return Existing(TOPIC, topic_id, GROUP)
            select.select([], [], [], 0.1)
    raise SystemExit("no coordinator takes offsets")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="requests with this text in their name")
    parser.add_argument("--partitions", type=int, default=1_000, help="of the topic that is named")
    parser.add_argument("--keep-nothing", action="store_true")
    arguments = parser.parse_args()
    pipe, childs_pipe = multiprocessing.Pipe()
    node = multiprocessing.get_context("spawn").Process(target=run_node, args=(childs_pipe,))
    node.start()
    rows = []
    address = pipe.recv()
    existing = prepare(address, arguments.partitions)
    for large in large_requests(existing):
        if arguments.only not in large.name:
            continue
        pipe.send(True)
        pipe.recv()
        with WireClient(address) as client:
            try:
                client.send(large.message, large.version)
                answer = f"{len(client.receive_frame()):,} bytes"
            except (HungUpError, TimeoutError) as error:
                answer = type(error).__name__
        pipe.send(True)
        hold: Hold = pipe.recv()
        print(
            f"{large.name:<58}{answer:>18}{hold.cpu_ms:>9.1f} ms{hold.collecting_ms:>8.1f} ms"
            f"{hold.clock_ms:>9.1f} ms  {hold.what}",
            flush=True,
        )
        rows.append({"request": large.name, **hold._asdict()})
    pipe.send(False)
    node.join()
    if not arguments.keep_nothing and not arguments.only:
        keep("loop_holds", partitions=arguments.partitions, rows=rows)


if __name__ == "__main__":
    main()
