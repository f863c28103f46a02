"""Requests that wait: when many are due together, other work runs in between."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from moldau.broker.server.deadlines import Deadlines, WakeUps
from moldau.net import slices
from moldau.net.clock import ShiftedClock

COUNT = 5


class Witness:
    """Records the order of turns."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.all_done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._left = COUNT

    def callback(self, number: int) -> Callable[[], None]:
        return partial(self._call, number)

    def _call(self, number: int) -> None:
        self.seen.append(number)
        self._loop.call_soon(self.seen.append, "other")
        self._left -= 1
        if not self._left:
            self._loop.call_soon(self.all_done.set)


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every check finds the slice over."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)


async def test_others_have_turns_between_deadlines_that_come_together() -> None:
    clock, witness = ShiftedClock(), Witness()
    deadlines = Deadlines(clock)
    for number in range(COUNT):
        deadlines.add(1_000, witness.callback(number))
    clock.advance(2_000)
    await witness.all_done.wait()
    assert witness.seen == [4, "other", 3, "other", 2, "other", 1, "other", 0, "other"]
    clock.close()


async def test_a_deadline_is_called_off_while_those_beside_it_come() -> None:
    clock, witness = ShiftedClock(), Witness()
    deadlines = Deadlines(clock)
    called_off = witness.callback(-1)
    bucket = deadlines.add(1_000, called_off)
    for number in range(COUNT - 1):
        deadlines.add(1_000, witness.callback(number))
    last = witness.callback(COUNT)

    def calls_off() -> None:
        last()
        bucket.pop(called_off)

    deadlines.add(1_000, calls_off)
    clock.advance(2_000)
    await witness.all_done.wait()
    assert -1 not in witness.seen
    assert not len(deadlines)
    clock.close()


async def test_others_have_turns_between_requests_that_are_woken_together() -> None:
    witness, wake_ups = Witness(), WakeUps()
    for number in range(COUNT):
        wake_ups.add(witness.callback(number))
    await witness.all_done.wait()
    assert witness.seen == [0, "other", 1, "other", 2, "other", 3, "other", 4, "other"]


async def test_a_failing_retry_does_not_affect_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    witness, wake_ups = Witness(), WakeUps()

    def fails() -> None:
        raise RuntimeError("this one only")

    wake_ups.add(fails)
    for number in range(COUNT):
        wake_ups.add(witness.callback(number))
    await witness.all_done.wait()
    assert any(record.exc_info for record in caplog.records)
