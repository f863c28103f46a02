"""The parts of a simulation: time, threads, processes and their ends."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from moldau.testing.simulation import Machine, NothingLeftError, ProcessDiedError, Simulation

Story = Callable[[Simulation], Coroutine[Any, Any, Any]]
A_DAY_S = 86_400.0


def run(story: Story, seed: int = 1) -> Simulation:
    simulation = Simulation(seed)
    simulation.run(story(simulation))
    return simulation


def test_a_day_passes_without_a_wait() -> None:
    async def story(simulation: Simulation) -> None:
        await simulation.pass_time(A_DAY_S)
        assert simulation.loop.time() >= A_DAY_S

    began_s = time.monotonic()
    run(story)
    assert time.monotonic() - began_s < A_DAY_S / 100


def test_waiting_for_nothing_is_an_error() -> None:
    async def story(simulation: Simulation) -> None:
        await simulation.loop.create_future()

    with pytest.raises(NothingLeftError, match="nothing can happen"):
        run(story)


def test_callbacks_of_a_process_keep_their_order() -> None:
    async def story(simulation: Simulation) -> None:
        called: list[int] = []
        for number in range(50):
            simulation.loop.call_soon(called.append, number)
        await simulation.pass_time(1)
        assert called == list(range(50))

    run(story)


def test_work_in_threads_ends_in_an_order_that_the_seed_draws() -> None:
    orders: dict[int, list[int]] = {}

    def one(seed: int) -> list[int]:
        ended: list[int] = []

        async def story(simulation: Simulation) -> None:
            work = [simulation.loop.run_in_executor(None, ended.append, n) for n in range(8)]
            await asyncio.gather(*work)

        run(story, seed)
        return ended

    orders = {seed: one(seed) for seed in range(5)}
    assert len({tuple(order) for order in orders.values()}) > 1
    assert orders == {seed: one(seed) for seed in range(5)}


def test_a_pool_of_one_thread_does_one_work_after_the_other() -> None:
    async def story(simulation: Simulation) -> None:
        done: list[int] = []
        with ThreadPoolExecutor(1) as pool:
            work = [simulation.loop.run_in_executor(pool, done.append, n) for n in range(20)]
            await asyncio.gather(*work)
        assert done == list(range(20))

    run(story)


async def _leaves_a_mark(simulation: Simulation, marks: list[str]) -> None:
    try:
        marks.append("began")
        await simulation.pass_time(1)
        marks.append("resumed")
    finally:
        marks.append("finally")


def test_a_kill_runs_no_finally() -> None:
    async def story(simulation: Simulation) -> None:
        machine = simulation.machine()
        machine.start_process()
        marks: list[str] = []
        waits = asyncio.ensure_future(machine.run(_leaves_a_mark(simulation, marks)))
        await simulation.pass_time(0.5)
        machine.kill()
        with pytest.raises(ProcessDiedError):
            await waits
        await simulation.pass_time(10)
        assert marks == ["began"]

    run(story)


def test_a_paused_process_continues_where_it_was() -> None:
    async def story(simulation: Simulation) -> None:
        machine = simulation.machine()
        machine.start_process()
        marks: list[str] = []
        waits = asyncio.ensure_future(machine.run(_leaves_a_mark(simulation, marks)))
        await simulation.pass_time(0.5)
        machine.pause()
        await simulation.pass_time(30)
        assert marks == ["began"]
        machine.resume()
        await waits
        assert marks == ["began", "resumed", "finally"]

    run(story)


async def _write(machine: Machine, name: str, *, syncs: bool) -> None:
    machine.disk.make_directory(Path("/d"))
    file = machine.disk.open(Path("/d") / name, create=True)
    file.append([b"content"])
    if syncs:
        file.sync()
        machine.disk.sync_directory(Path("/d"))
        machine.disk.sync_directory(Path("/"))


def test_a_kill_keeps_what_was_written_and_a_power_cut_what_was_synced() -> None:
    async def story(simulation: Simulation) -> set[str]:
        machine = simulation.machine()
        machine.start_process()
        await machine.run(_write(machine, "synced", syncs=True))
        await machine.run(_write(machine, "written", syncs=False))
        machine.kill()
        assert set(machine.disk.files()) == {"/d/synced", "/d/written"}
        machine.start_process()
        machine.cut_power()
        assert machine.disk.files()["/d/synced"] == b"content"
        return set(machine.disk.files())

    found = [Simulation(seed) for seed in range(20)]
    lost = [simulation.run(story(simulation)) == {"/d/synced"} for simulation in found]
    assert any(lost)


def test_the_power_fails_in_the_middle_of_an_effect() -> None:
    async def story(simulation: Simulation) -> None:
        machine = simulation.machine()
        machine.start_process()
        machine.cut_power_at(2)
        with pytest.raises(ProcessDiedError):
            await machine.run(_write(machine, "name", syncs=True))
        assert machine.process is None
        assert "/d/name" not in machine.disk.files()

    run(story)


def test_an_error_that_nothing_handles_is_a_problem() -> None:
    async def story(simulation: Simulation) -> None:
        simulation.loop.call_soon(lambda: 1 // 0)
        await simulation.pass_time(1)

    (problem,) = run(story).problems
    assert "ZeroDivisionError" in problem


def test_a_disk_fails_at_its_rate() -> None:
    async def story(simulation: Simulation) -> None:
        machine = simulation.machine()
        error = OSError(5, "Input/output error")
        machine.disk.fail_by_chance(simulation.chance_for("disk"), 0.5, error)
        failed = 0
        for number in range(100):
            try:
                machine.disk.make_directory(Path(f"/{number}"))
            except OSError:
                failed += 1
        assert 30 < failed < 70
        machine.disk.fail_by_chance(simulation.chance_for("disk"), 0, error)
        machine.disk.make_directory(Path("/fine"))

    run(story)


def test_a_full_disk_takes_nothing_more_until_it_is_cleared_also_after_a_kill() -> None:
    async def story(simulation: Simulation) -> None:
        machine = simulation.machine()
        machine.start_process()
        await machine.run(_write(machine, "before", syncs=True))
        machine.fill_disk()
        with pytest.raises(OSError, match="No space left"):
            await machine.run(_write(machine, "refused", syncs=False))
        machine.kill()
        machine.start_process()
        with pytest.raises(OSError, match="No space left"):
            await machine.run(_write(machine, "refused", syncs=False))
        machine.disk.remove(Path("/d/before"))
        machine.clear_disk()
        await machine.run(_write(machine, "after", syncs=False))
        assert set(machine.disk.files()) == {"/d/after"}

    run(story)


def test_an_observer_is_called_after_each_callback_with_its_process() -> None:
    async def story(simulation: Simulation) -> None:
        machine = simulation.machine()
        process = machine.start_process()
        seen: list[tuple[str, list[str]]] = []
        marks: list[str] = []
        simulation.loop.on_turn = lambda turned: seen.append((turned.name, list(marks)))
        await machine.run(_leaves_a_mark(simulation, marks))
        assert (process.name, ["began"]) in seen
        assert (process.name, ["began", "resumed", "finally"]) in seen

    run(story)
