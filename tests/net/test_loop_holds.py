"""Callbacks that hold an event loop are reported with a name, and short ones are not."""

import asyncio
import time
from functools import partial

from moldau.net.clock import Clock
from moldau.net.loop_holds import NOTED_MS, measured, name_of, unwatch_loop, watch_loop
from moldau.net.tasks import Tasks


def work_for(ms: float) -> None:
    ends_s = time.perf_counter() + ms / 1000
    while time.perf_counter() < ends_s:
        pass


class Timers:
    def check(self, _key: tuple[str, str]) -> None:
        work_for(2 * NOTED_MS)


async def test_long_callbacks_are_reported_until_the_watch_ends() -> None:
    seen: list[tuple[str, str]] = []

    def report(kind: str, call: object, took_ms: float) -> None:
        assert took_ms >= NOTED_MS
        seen.append((kind, name_of(call)))

    clock, tasks, done = Clock(), Tasks(are_measured=True), asyncio.Event()
    watch_loop(report)
    clock.call_later(0, partial(Timers().check, ("join", "g")))
    clock.call_later(1, done.set)
    await done.wait()
    assert ("timer", "Timers.check(('join', 'g'))") in seen
    seen.clear()

    async def steps() -> str:
        await asyncio.sleep(0)
        work_for(2 * NOTED_MS)
        await asyncio.sleep(0)
        return "result"

    assert await tasks.start(steps(), "load") == "result"
    assert ("task", "load") in seen
    unwatch_loop(report)
    seen.clear()
    measured("timer", work_for, 2 * NOTED_MS)
    assert seen == []
    clock.close()


async def test_a_measured_task_fails_and_is_cancelled_like_any_other() -> None:
    tasks = Tasks(are_measured=True)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("as expected")

    ended = await asyncio.gather(
        tasks.start(fails(), "fails", expects=(ValueError,)), return_exceptions=True
    )
    assert [str(error) for error in ended] == ["as expected"]
    forever = tasks.start(asyncio.Event().wait(), "waits")
    await asyncio.sleep(0)
    await tasks.close()
    assert forever.cancelled()


def test_names_are_short_and_without_large_arguments() -> None:
    assert name_of("load topic-1") == "load topic-1"
    assert name_of(partial(len, bytes(5))) == "len"
    assert name_of(lambda: None) == "test_names_are_short_and_without_large_arguments"
    assert name_of(partial(int, "g" * 500)) == f"int('{'g' * 95}"
