"""Starts and stops the node, the generator, the pipeline and the view of `moldau demo` in the right
order.
"""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

from moldau.admin import NewTopic
from moldau.aio import Admin
from moldau.broker.node.node import Node
from moldau.cli.demo.orders import PARTITIONS, TOPIC, publish
from moldau.cli.demo.pipeline import PipelineProcess, write_pipeline_file
from moldau.cli.demo.results import (
    Results,
    Table,
    count_dead_letters,
    follow_counts,
    follow_topics,
    update_counts,
)
from moldau.cli.demo.view import shown
from moldau.frozen import frozen
from moldau.protocol.errors import KafkaError, MoldauError

_LAKE = Path("lake", "orders")
_DRAW_S = 0.5


@frozen
class Bounds:
    rate: int
    orders: int | None
    seconds: int | None

    @property
    def is_bounded(self) -> bool:
        return self.orders is not None or self.seconds is not None


class Stage:
    def __init__(self, node: Node, folder: Path, bounds: Bounds) -> None:
        self._node = node
        self._folder = folder
        self._bounds = bounds
        self._results = Results()
        self._table = Table(folder / _LAKE)
        self._stop = asyncio.Event()
        self._enough = asyncio.Event()
        """Set when enough orders are published."""
        self._pipeline = PipelineProcess(write_pipeline_file(folder))

    async def run(self) -> str:
        """Runs until a signal or the bounds stop it. Returns the last line of output. Raises
        MoldauError.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signal_received)
        await self._node.start()
        try:
            return await self._run_all(self._node.address)
        finally:
            await self._node.stop()

    def _signal_received(self) -> None:
        if self._stop.is_set():
            self._pipeline.stop()
        self._stop.set()
        self._enough.set()

    async def _run_all(self, address: str) -> str:
        await self._create_topics(address)
        try:
            async with asyncio.TaskGroup() as group:
                await self._pipeline.start(address)
                results = self._results
                watching = [
                    group.create_task(follow_topics(address, results), name="topics"),
                    group.create_task(follow_counts(address, self._table, results), name="counts"),
                    group.create_task(self._draw(address), name="view"),
                    group.create_task(self._watch_node(), name="node"),
                ]
                running = group.create_task(self._pipeline.follow(results.queries), name="run")
                await self._publish_and_end(address)
                await running
                for task in watching:
                    task.cancel()
        except BaseExceptionGroup as errors:
            # The first error caused the others. Do not wait for the batch: the second call kills.
            self._pipeline.stop()
            raise _first(errors) from None
        finally:
            self._pipeline.stop()
            await self._pipeline.ended()
        return await self._last_line(address)

    async def _create_topics(self, address: str) -> None:
        from moldau.pipelines import load
        from moldau.pipelines.compile.topics import written_topics

        written = written_topics(load(self._folder / "orders.yaml"))
        async with Admin(address) as admin:
            existing = await admin.list_topics()
            needed = [NewTopic(name=TOPIC, partitions=PARTITIONS), *written.values()]
            missing = [topic for topic in needed if topic.name not in existing]
            outcomes = await admin.create_topics(missing) if missing else {}
            for name, outcome in outcomes.items():
                if isinstance(outcome, KafkaError):
                    raise MoldauError(f"topic {name} cannot be created: {outcome}")

    async def _publish_and_end(self, address: str) -> None:
        bounds = self._bounds
        if bounds.seconds is not None:
            asyncio.get_running_loop().call_later(bounds.seconds, self._enough.set)
        await publish(address, bounds.rate, bounds.orders, self._enough)
        if bounds.is_bounded and not self._stop.is_set():
            await self._wait_until_written(address)
        self._pipeline.stop()

    async def _wait_until_written(self, address: str) -> None:
        async with Admin(address) as admin:
            while not self._stop.is_set():
                await update_counts(admin, self._table, self._results)
                if self._results.in_flight <= 0:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DRAW_S):
                        await self._stop.wait()

    async def _draw(self, address: str) -> None:
        heading = [
            f"A Kafka node runs on {address} for any Kafka client. Ctrl-C stops everything.",
            f"  moldau consume orders.big --follow -b {address}",
            f"  moldau groups describe moldau.pipeline.orders.orders -b {address}",
            f"  pipeline: {self._folder / 'orders.yaml'}, table: {self._folder / _LAKE}",
        ]
        with shown(self._results, heading) as show:
            while True:
                show()
                await asyncio.sleep(_DRAW_S)

    async def _watch_node(self) -> None:
        await self._node.wait_until_failed_or(asyncio.Event())
        raise MoldauError(str(self._node.failure))

    async def _last_line(self, address: str) -> str:
        """Counts again: the pipeline has ended, and the numbers no longer change."""
        results = Results()
        async with Admin(address) as admin:
            await update_counts(admin, self._table, results)
        distinct = await asyncio.to_thread(self._table.count_distinct)
        results.dead_letters = await count_dead_letters(address)
        if distinct != results.in_table:
            raise MoldauError(f"{results.in_table - distinct} orders are in the table twice")
        rest = f" + {results.in_flight} left for the next run" if results.in_flight else ""
        return (
            f"stopped; {results.published} orders published = {results.in_table} in the table, "
            f"each once + {results.dead_letters} dead letters{rest}"
        )


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
