"""Long work yields to other tasks in between; short work is done at once."""

import asyncio
import inspect
import itertools
import time
from typing import Any

import pytest

from moldau.net import slices
from moldau.net.slices import (
    ITEMS_BETWEEN_CHECKS,
    SLICE_S,
    Slices,
    free_in_slices,
    in_slices,
    once_in_slices,
)


def test_short_work_is_done_at_once() -> None:
    assert in_slices(str, range(ITEMS_BETWEEN_CHECKS - 1), "".join) == "0123456"


async def test_long_work_is_done_in_order_and_others_have_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # Every check finds the slice over.
    seen: list[object] = []
    loop = asyncio.get_running_loop()

    def work(number: int) -> int:
        if number % ITEMS_BETWEEN_CHECKS == 0:
            loop.call_soon(seen.append, "other")
        seen.append(number)
        return number

    outcome = in_slices(work, range(4 * ITEMS_BETWEEN_CHECKS), list)
    assert inspect.isawaitable(outcome)
    assert await outcome == list(range(4 * ITEMS_BETWEEN_CHECKS))
    assert [at for at, each in enumerate(seen) if each == "other"] == [8, 17, 26, 35]


async def turns_until_done(work: asyncio.Future[Any]) -> int:
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_short_work_on_distinct_items_is_done_at_once() -> None:
    assert once_in_slices(str, [1, 2, 1, 3], abs, "".join) == "123"
    assert once_in_slices(str, [1, -1, 2, -3, 3], abs, "".join) == "12-3"


@pytest.mark.parametrize("items", [[7] * 800, [*range(400), *range(400)]])
async def test_others_have_their_turns_while_items_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, items: list[int]
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    outcome = once_in_slices(lambda item: item, items, abs, list)
    assert inspect.isawaitable(outcome)
    work = asyncio.ensure_future(outcome)
    assert await turns_until_done(work) >= 800 // ITEMS_BETWEEN_CHECKS
    assert work.result() == list(dict.fromkeys(items))


async def test_others_have_their_turns_while_objects_are_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    numbers = range(10_000)
    collections = list(numbers), set(numbers), dict.fromkeys(numbers)
    work = asyncio.ensure_future(free_in_slices(*collections))
    assert await turns_until_done(work) >= 30
    assert [len(each) for each in collections] == [0, 0, 0]


async def test_each_turn_of_the_loop_runs_one_slice_of_long_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    seen: list[str] = []
    loop = asyncio.get_running_loop()

    def turn() -> None:
        seen.append(".")
        loop.call_soon(turn)

    async def work(name: str) -> None:
        mine = Slices()
        for _ in range(3):
            assert mine.is_over
            await mine.next()
            seen.append(name)

    jobs = [asyncio.ensure_future(work(name)) for name in "abcd"]
    turn()
    jobs[3].cancel()
    await asyncio.gather(*jobs[:3])
    assert "".join(seen).replace(".", "") == "abcabcabc"
    assert not any("".join(pair).isalpha() for pair in itertools.pairwise(seen))


async def test_a_later_exception_reaches_the_waiting_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    outcome = in_slices(lambda number: 1 // (20 - number), range(40), list)
    assert inspect.isawaitable(outcome)
    with pytest.raises(ZeroDivisionError):
        await outcome


async def test_a_slice_is_over_when_its_time_is() -> None:
    turns = Slices()
    ends_s = time.perf_counter() + SLICE_S
    while time.perf_counter() < ends_s:
        pass
    assert turns.is_over
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "served")
    await turns.next()
    assert others == ["served"]
