"""Callbacks that block the event loop are counted and logged, requests with their clients."""

import asyncio
import logging
import time
from pathlib import Path

import pytest
from broker.data_node import running
from broker.node.test_node import node_with

from moldau.broker.coordinators.timers import KeyedTimers
from moldau.broker.handlers.table import HANDLERS
from moldau.broker.server.dispatch import Dispatcher
from moldau.broker.server.handler_table import HandlerTable
from moldau.broker.server.loop_watch import SLOW_MS, RecentMax
from moldau.core.coordinator.effects import TimerKey
from moldau.net.loop_holds import measured
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.wire.frame import build_request


def work_for(ms: float) -> None:
    ends_s = time.perf_counter() + ms / 1000
    while time.perf_counter() < ends_s:
        pass


@pytest.mark.parametrize("in_steps", [False, True], ids=["at once", "in steps"])
async def test_a_request_that_holds_the_loop_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, in_steps: bool
) -> None:
    async def steps() -> ApiVersionsResponse:
        await asyncio.sleep(0)
        work_for(SLOW_MS)
        await asyncio.sleep(0)
        return ApiVersionsResponse()

    def outcome(*_: object) -> object:
        if in_steps:
            return steps()
        work_for(SLOW_MS)
        return ApiVersionsResponse()

    async with running(tmp_path) as node:
        request = ApiVersionsRequest()
        context = node.context(request)
        served = {ApiKey.API_VERSIONS: HANDLERS[ApiKey.API_VERSIONS]}
        table = HandlerTable(served, controller=False)
        dispatcher = Dispatcher(context.broker, table, context.broker.metrics.loop)
        dispatcher.interceptor = outcome
        sent = build_request(request, 3, correlation_id=1, client_id="greedy")
        frame = memoryview(b"".join(sent))[4:]
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                begun = dispatcher.begin(context.peer, frame)
                if in_steps:
                    await asyncio.ensure_future(begun.outcome)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "API_VERSIONS request of client 'greedy' at 127.0.0.1 blocked all other requests" in line
    watch = context.broker.metrics.loop
    assert watch.recent_ms() >= SLOW_MS
    assert watch.recent_ms_by_api()["API_VERSIONS"] >= SLOW_MS


async def test_timers_and_tasks_that_hold_the_loop_are_named_without_a_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = node_with(tmp_path)
    await node.start()
    watch = node.metrics.loop
    tasks, done = Tasks(are_measured=True), asyncio.Event()

    async def steps() -> None:
        await asyncio.sleep(0)
        work_for(SLOW_MS)
        done.set()

    def fired(key: TimerKey) -> None:
        assert key == ("join", "wide")
        work_for(SLOW_MS)
        _ = tasks.start(steps(), "load everything")

    with caplog.at_level(logging.WARNING):
        KeyedTimers(node.clock, fired).start(("join", "wide"), 0)
        await done.wait()
        await tasks.close()
    (line,) = [r.getMessage() for r in caplog.records if "blocked" in r.getMessage()]
    assert "a timer (KeyedTimers._check(('join', 'wide'))) blocked all requests for" in line
    recent_ms = watch.recent_ms_by_kind()
    assert min(recent_ms["timer"], recent_ms["task"], watch.recent_ms()) >= SLOW_MS
    await node.stop()
    # Other nodes may still run in the same loop.
    longest_ms = watch.recent_ms()
    measured("timer", work_for, longest_ms + SLOW_MS)
    assert watch.recent_ms() == longest_ms


def test_a_maximum_is_forgotten_after_a_minute() -> None:
    recent = RecentMax()
    recent.add(7, 100.0)
    recent.add(3, 140.0)
    assert recent.of(159.0) == 7
    assert recent.of(171.0) == 3
    assert recent.of(300.0) == 0
