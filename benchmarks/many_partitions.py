"""How long does the active controller of a cluster with a hundred thousand partitions hold its
event loop, when brokers come, go and fall silent?

    python benchmarks/many_partitions.py [--partitions 100000] [--topics 1000]

A controller over a real metadata log, in plain asyncio, where every callback of the loop is timed.
Shown for each change: how many records it wrote, how long it took, and the longest callback: in
processor time, how much of it was garbage collection, by the clock, and its name.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kept_results import keep
from loop_holds import Hold, Watch

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from broker.controller_bench import Bench, bench
from broker.metadata_node import CLUSTER

from moldau.broker.node.garbage_collection import GarbageCollection
from moldau.cli.node.start import THREAD_TURN_S
from moldau.core.controller.features import SUPPORTED_FEATURES
from moldau.protocol.log_records import PartitionRecord, TopicRecord
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.types import BrokerId, Uuid

BROKERS = (2, 3, 4)
SILENT = 4
RECORDS_PER_BATCH = 5_000
STEP_MS = 1_000
TURNS = 10
REST_S = 0.5
SETTINGS = {
    "broker.session.timeout.ms": "9000",
    "leader.imbalance.check.interval.seconds": "30",
    "min.insync.replicas": "2",
}


def directory(broker: int) -> Uuid:
    return Uuid(bytes([100 + broker]) * 16)


async def register(node: Bench, broker: int, incarnation: int = 1) -> None:
    request = BrokerRegistrationRequest(
        broker_id=broker,
        cluster_id=CLUSTER,
        incarnation_id=Uuid(bytes([broker, incarnation]) * 8),
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        log_dirs=[directory(broker)],
    )
    response = await node.ask(request)
    assert response.error_code == 0, response


async def heartbeat(node: Bench, broker: int, **wants: Any) -> Any:
    request = BrokerHeartbeatRequest(
        broker_id=broker,
        broker_epoch=node.controller.image.brokers[broker].epoch,
        current_metadata_offset=node.quorum.last_offset,
        **wants,
    )
    response = await node.ask(request)
    assert response.error_code == 0, response
    return response


async def fill(node: Bench, topics: int, partitions: int) -> None:
    records: list[Any] = []
    for number in range(topics):
        topic_id = Uuid((1000 + number).to_bytes(16, "big"))
        records.append(TopicRecord(name=f"topic-{number}", topic_id=topic_id))
        for index in range(partitions // topics):
            replicas = [BROKERS[(number + index + each) % len(BROKERS)] for each in range(3)]
            records.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    directories=[directory(broker) for broker in replicas],
                    isr=replicas,
                    leader=replicas[index % 10 == 0],
                )
            )
    for start in range(0, len(records), RECORDS_PER_BATCH):
        some = records[start : start + RECORDS_PER_BATCH]
        await node.quorum.wait_committed(node.quorum.append(some, node.clock.wall_ms()))
    # The controller takes over what is in the log, as one that has just been elected.
    for leader in (BrokerId(9), BrokerId(1)):
        node.controller.on_leader_change(node.quorum.leader_epoch, leader)


async def pass_time(node: Bench, ms: int, *silent: int) -> None:
    """All other brokers send heartbeats meanwhile."""
    for _ in range(ms // STEP_MS):
        node.clock.advance(STEP_MS)
        for broker in BROKERS:
            if broker not in silent:
                await heartbeat(node, broker)
        # Time for the timers that are due, and for what they begin.
        for _ in range(TURNS):
            await asyncio.sleep(0)


class Measuring:
    def __init__(self, node: Bench, watch: Watch) -> None:
        self.rows: list[dict[str, object]] = []
        self._node = node
        self._watch = watch

    async def change(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        node = self._node
        await node.quorum.wait_committed(node.quorum.last_offset)
        was, began_s = node.quorum.last_offset, time.perf_counter()
        self._watch.longest = Hold()
        await work()
        took_s = time.perf_counter() - began_s
        # For tasks that are under way: nothing tells when they end.
        while True:
            end = node.quorum.last_offset
            await asyncio.sleep(REST_S)
            if node.quorum.last_offset == end:
                break
            took_s = time.perf_counter() - began_s
        await node.quorum.wait_committed(node.quorum.last_offset)
        hold = self._watch.longest
        records = node.quorum.last_offset - was
        print(
            f"{name:<46}{records:>8,} records{took_s:>7.2f} s{hold.cpu_ms:>9.1f} ms"
            f"{hold.collecting_ms:>8.1f} ms{hold.clock_ms:>9.1f} ms  {hold.what}",
            flush=True,
        )
        self.rows.append({"change": name, "records": records, "took_s": took_s, **hold._asdict()})


async def measure(topics: int, partitions: int, path: Path) -> list[dict[str, object]]:
    async with bench(path, SETTINGS) as node:
        for broker in BROKERS:
            await register(node, broker)
            await heartbeat(node, broker)
        await fill(node, topics, partitions)
        GarbageCollection(node.clock).start()
        watch = Watch()
        watch.install()
        measuring = Measuring(node, watch)
        change = measuring.change
        await change("heartbeats", lambda: pass_time(node, 5_000))
        await change("leaders are balanced", lambda: pass_time(node, 31_000))
        await change("a broker's session expires", lambda: pass_time(node, 13_000, SILENT))
        assert node.image.brokers[SILENT].is_fenced
        await change("it registers again", lambda: register(node, SILENT, 2))
        await change("it is unfenced", lambda: heartbeat(node, SILENT))
        assert not node.image.brokers[SILENT].is_fenced
        await change("a broker stops", lambda: heartbeat(node, 3, want_shut_down=True))
        await change("it reports that it stops", lambda: heartbeat(node, 3, want_shut_down=True))
        while not node.image.brokers[3].is_fenced:
            await pass_time(node, STEP_MS, 3)
        await change("it restarts after a crash", lambda: register(node, 3, 2))
        await change(
            "a broker is unregistered",
            lambda: node.ask(UnregisterBrokerRequest(broker_id=2)),
        )
        return measuring.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--keep-nothing", action="store_true")
    arguments = parser.parse_args()
    sys.setswitchinterval(THREAD_TURN_S)
    with tempfile.TemporaryDirectory() as path:
        rows = asyncio.run(measure(arguments.topics, arguments.partitions, Path(path) / "data"))
    if not arguments.keep_nothing:
        keep(
            "many_partitions",
            partitions=arguments.partitions,
            topics=arguments.topics,
            rows=rows,
        )


if __name__ == "__main__":
    main()
