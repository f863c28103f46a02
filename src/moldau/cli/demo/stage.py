"""Node, orders, pipeline and view of `moldau demo`, started and ended in the right order."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

from moldau.admin import NewTopic
from moldau.aio import Admin
from moldau.broker.node.node import Node
from moldau.cli.demo.orders import PARTITIONS, TOPIC, publish
from moldau.cli.demo.pipeline import PipelineProcess, place_file
from moldau.cli.demo.results import (
    Results,
    Table,
    count_dead_letters,
    follow_topics,
    look_at,
    look_once,
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
        """Is published."""
        self._pipeline = PipelineProcess(place_file(folder))

    async def run(self) -> str:
        """Until it is asked to stop or has done what it should. Gives the last line. Raises
        MoldauError.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked_to_stop)
        await self._node.start()
        try:
            return await self._play(self._node.client_address)
        finally:
            await self._node.stop()

    def _asked_to_stop(self) -> None:
        if self._stop.is_set():
            self._pipeline.ask_to_end()
        self._stop.set()
        self._enough.set()

    async def _play(self, address: str) -> str:
        await self._make_topics(address)
        try:
            async with asyncio.TaskGroup() as group:
                await self._pipeline.start(address)
                results = self._results
                watching = [
                    group.create_task(follow_topics(address, results), name="topics"),
                    group.create_task(look_at(address, self._table, results), name="counts"),
                    group.create_task(self._draw(address), name="view"),
                    group.create_task(self._watch_node(), name="node"),
                ]
                running = group.create_task(self._pipeline.follow(results.queries), name="run")
                await self._publish_and_end(address)
                await running
                for task in watching:
                    task.cancel()
        except BaseExceptionGroup as errors:
            # One is told; the others are what came of it. Nothing is waited for any more.
            self._pipeline.ask_to_end()
            raise _first(errors) from None
        finally:
            self._pipeline.ask_to_end()
            await self._pipeline.ended()
        return await self._last_line(address)

    async def _make_topics(self, address: str) -> None:
        from moldau.pipelines import load
        from moldau.pipelines.compile.topics import written_topics

        made = written_topics(load(self._folder / "orders.yaml"))
        async with Admin(address) as admin:
            there = await admin.list_topics()
            wanted = [NewTopic(name=TOPIC, partitions=PARTITIONS), *made.values()]
            new = [one for one in wanted if one.name not in there]
            for name, outcome in (await admin.create_topics(new) if new else {}).items():
                if isinstance(outcome, KafkaError):
                    raise MoldauError(f"topic {name} cannot be made: {outcome}")

    async def _publish_and_end(self, address: str) -> None:
        bounds = self._bounds
        if bounds.seconds is not None:
            asyncio.get_running_loop().call_later(bounds.seconds, self._enough.set)
        await publish(address, bounds.rate, bounds.orders, self._enough)
        if bounds.is_bounded and not self._stop.is_set():
            await self._all_written(address)
        self._pipeline.ask_to_end()

    async def _all_written(self, address: str) -> None:
        async with Admin(address) as admin:
            while not self._stop.is_set():
                await look_once(admin, self._table, self._results)
                if self._results.on_the_way <= 0:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DRAW_S):
                        await self._stop.wait()

    async def _draw(self, address: str) -> None:
        heading = [
            f"A Kafka node runs on {address} for any Kafka client. Ctrl-C stops it all.",
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
        """Counted anew: the pipeline has ended, and nothing moves any more."""
        results = Results()
        async with Admin(address) as admin:
            await look_once(admin, self._table, results)
        distinct = await asyncio.to_thread(self._table.count_distinct)
        results.dead_letters = await count_dead_letters(address)
        if distinct != results.in_table:
            raise MoldauError(f"{results.in_table - distinct} orders are in the table twice")
        rest = f" + {results.on_the_way} that the next run takes" if results.on_the_way else ""
        return (
            f"stopped; {results.published} orders published = {results.in_table} in the table, "
            f"each once + {results.dead_letters} dead letters{rest}"
        )


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
