"""Timers fire when they are due, in order, and a moved clock brings them forward."""

import asyncio
from functools import partial

import pytest

from moldau.net import slices
from moldau.net.clock import Clock, ShiftedClock
from moldau.net.tasks import Tasks


async def test_timers_fire_in_the_order_of_their_times() -> None:
    clock = Clock()
    fired: list[int] = []
    done = asyncio.Event()
    clock.call_later(30, done.set)
    for delay_ms in (20, 5, 10, 0):
        clock.call_later(delay_ms, lambda delay_ms=delay_ms: fired.append(delay_ms))  # type: ignore[misc]
    await done.wait()
    assert fired == [0, 5, 10, 20]
    clock.close()


async def test_a_cancelled_timer_does_not_fire() -> None:
    clock = Clock()
    fired: list[str] = []
    done = asyncio.Event()
    clock.call_later(1, lambda: fired.append("cancelled")).cancel()
    clock.call_later(5, done.set)
    await done.wait()
    assert fired == []
    clock.close()


async def test_cancelled_timers_do_not_wait_for_their_time() -> None:
    clock = Clock()
    fired = asyncio.Event()
    clock.call_later(5, fired.set)
    for _ in range(10_000):
        clock.call_later(10**9, lambda: None).cancel()
    assert len(clock._heap) < 1_000
    await fired.wait()
    clock.close()


async def test_advancing_fires_only_timers_that_become_due() -> None:
    clock = ShiftedClock()
    fired: list[str] = []
    hour = asyncio.Event()
    clock.call_later(7_200_000, lambda: fired.append("two hours"))
    clock.call_later(3_600_000, hour.set)
    before_ms = clock.wall_ms()
    clock.advance(3_600_000)
    await hour.wait()
    assert fired == []
    assert clock.wall_ms() - before_ms >= 3_600_000
    clock.close()


async def test_a_timer_that_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    done = asyncio.Event()
    seen: list[object] = []
    clock.call_later(0, lambda: seen.remove("nothing"))
    clock.call_later(1, done.set)
    await done.wait()
    assert len([record for record in caplog.records if record.exc_info]) == 1
    clock.close()


async def test_others_have_turns_between_timers_that_are_due_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # Every check finds the slice over.
    clock = ShiftedClock()
    seen: list[object] = []
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def fire(number: int) -> None:
        seen.append(number)
        loop.call_soon(seen.append, "other")
        if number == 3:
            loop.call_soon(done.set)

    for number in range(4):
        clock.call_later(1_000, partial(fire, number))
    clock.advance(2_000)
    await done.wait()
    assert seen == [0, "other", 1, "other", 2, "other", 3, "other"]
    clock.close()


async def test_sleeping_ends_when_the_time_is_over() -> None:
    clock = ShiftedClock()
    tasks = Tasks()
    sleeper = tasks.start(clock.sleep(60_000), "sleeper")
    await asyncio.sleep(0)
    clock.advance(60_000)
    await sleeper
    clock.close()


async def test_closing_ends_all_tasks() -> None:
    tasks = Tasks()
    ended: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("stubborn")

    _ = tasks.start(stubborn(), "stubborn")
    await asyncio.sleep(0)
    await tasks.close()
    assert (ended, len(tasks)) == (["stubborn"], 0)


async def test_work_that_takes_too_long_by_this_clock_is_cancelled() -> None:
    clock = ShiftedClock()
    asyncio.get_running_loop().call_soon(clock.advance, 1_001)
    with pytest.raises(TimeoutError):
        async with clock.timeout(1_000):
            await asyncio.get_running_loop().create_future()
    async with clock.timeout(1_000):
        await asyncio.sleep(0)
    clock.advance(2_000)
    await asyncio.sleep(0)
    clock.close()
