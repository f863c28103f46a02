"""Feeds the quorum machine, one event after the other, and has its effects performed in order.

An effect that waits for the disk is a generator of steps. While a thread runs such a step, the rest
of the effects wait, and the machine gets no event: so a vote is on the disk before its response
leaves, and the event loop stays free. All other effects are performed at once. What an effect did
to the log is the machine's next event, before any that came meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import TypeAlias

from moldau.core.quorum.events import Effect, Event, TimePassed
from moldau.core.quorum.machine import QuorumMachine
from moldau.net.clock import Clock, Timer
from moldau.net.tasks import Tasks
from moldau.storage.disk.disk_steps import Steps

Outcome: TypeAlias = Event | None
Perform: TypeAlias = Callable[[Effect], Outcome | Steps[Outcome]]
RunSteps: TypeAlias = Callable[[Steps[Outcome]], Awaitable[Outcome]]
MayRepeat: TypeAlias = Callable[[Effect, Exception], bool]

REPEAT_MS = 100


class MachineDriver:
    def __init__(
        self,
        machine: QuorumMachine,
        clock: Clock,
        perform: Perform,
        run_steps: RunSteps,
        may_repeat: MayRepeat,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """`perform` returns the event that follows from an effect, or the steps that return it;
        `run_steps` runs them in a thread. If the steps raise and `may_repeat` allows it, the effect
        is performed again after a moment. Otherwise the machine has promised what did not happen:
        `on_failure` is called, and nothing is performed any more.
        """
        self.busy_ms = 0.0
        """Time for which the machine's events and effects have held the event loop."""
        self._machine = machine
        self._clock = clock
        self._perform = perform
        self._run_steps = run_steps
        self._may_repeat = may_repeat
        self._on_failure = on_failure
        self._tasks = Tasks()
        self._events: deque[Event] = deque()
        """Bounded by the requests of open connections, and by those that this node has sent."""
        self._follow_ups: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._is_busy = False
        self._is_stopped = False
        self._wake_up: Timer | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def start(self, event: Event) -> None:
        """The first event. Raises what the machine raises."""
        self._effects.extend(self._machine.step(event, self._clock.mono_ms()))
        self._run()

    def feed(self, event: Event) -> None:
        """At once, unless the machine is at work: then in turn."""
        if not self._is_stopped:
            self._events.append(event)
            self._run()

    def log_changed(self, event: Event) -> None:
        """The caller has changed the log, which the machine must know before anything else."""
        if not self._is_stopped:
            self._follow_ups.append(event)
            self._run()

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    def stop(self) -> None:
        """The machine gets no further event. What is being done on the disk is completed."""
        self._is_stopped = True
        self._events.clear()
        self._follow_ups.clear()
        self._effects.clear()
        if self._wake_up is not None:
            self._wake_up.cancel()
        self._notify()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits until the machine fulfils it, or is stopped."""
        while not condition() and not self._is_stopped:
            rest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(rest)
            await rest

    async def wait(self) -> None:
        """Waits for the disk. Call it after `stop`."""
        await self._tasks.wait()

    def _run(self) -> None:
        if self._is_busy:
            return
        self._is_busy = True
        began_ms = self._clock.mono_ms()
        try:
            self._is_busy = self._run_until_slow()
        except Exception as error:  # noqa: BLE001 - whatever it is, the promise is broken
            self._fail(error)
        finally:
            self.busy_ms += self._clock.mono_ms() - began_ms
        if not self._is_busy and not self._is_stopped:
            self._schedule_wake()
        self._notify()

    def _run_until_slow(self) -> bool:
        """Returns whether an effect waits for the disk."""
        while not self._is_stopped:
            if self._effects:
                effect = self._effects.popleft()
                outcome = self._perform(effect)
                if isinstance(outcome, Generator):
                    slow = self._perform_slowly(effect, outcome)
                    _ = self._tasks.start(slow, "perform a quorum effect")
                    return True
                if outcome is not None:
                    self._follow_ups.append(outcome)
            elif self._follow_ups:
                self._step(self._follow_ups.popleft())
            elif self._events:
                self._step(self._events.popleft())
            else:
                break
        return False

    def _step(self, event: Event) -> None:
        self._effects.extend(self._machine.step(event, self._clock.mono_ms()))

    async def _perform_slowly(self, effect: Effect, steps: Steps[Outcome]) -> None:
        try:
            outcome = await self._repeated(effect, steps)
        except Exception as error:  # noqa: BLE001 - as in _run
            self._fail(error)
            return
        self._is_busy = False
        if outcome is not None:
            self._follow_ups.append(outcome)
        self._run()

    async def _repeated(self, effect: Effect, steps: Steps[Outcome]) -> Outcome:
        """Until it succeeds, or a stop makes it pointless: nothing was promised yet."""
        while True:
            try:
                return await self._run_steps(steps)
            except Exception as error:
                if not self._may_repeat(effect, error):
                    raise
            if not self._is_stopped:
                await self._clock.sleep(REPEAT_MS)
            if self._is_stopped:
                return None
            again = self._perform(effect)
            assert isinstance(again, Generator), effect
            steps = again

    def _fail(self, error: Exception) -> None:
        self.stop()
        self._on_failure(error)

    def _notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for rest in waiting:
            if not rest.done():
                rest.set_result(None)

    def _schedule_wake(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        wake_ms = self._machine.wake_ms
        if wake_ms < float("inf"):
            delay_ms = wake_ms - self._clock.mono_ms()
            self._wake_up = self._clock.call_later(delay_ms, lambda: self.feed(TimePassed()))
