"""Large decisions beside others: which of them wait, and that none waits for ever."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from broker.controller_bench import Bench, bench
from broker.gated_threads import GatedThreads, gated_threads

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

SESSION = {"broker.session.timeout.ms": "60000", "request.timeout.ms": "30000"}
# A little more than the time between two checks of the sessions, so that none counts as late.
STEP_MS = 7_600
Send = Callable[..., Coroutine[Any, Any, Any]]

NAMES = [f"large-{number}" for number in range(100)]


def create(*names: str) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000)


async def turns(node: Bench) -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    await node.quorum.wait_committed(node.quorum.last_offset)


async def last_attempt(
    node: Bench, threads: GatedThreads, send: Send | None = None
) -> tuple[asyncio.Future[Any], Any]:
    """A large decision that has lost one race, and the gate of its second attempt."""
    large = asyncio.ensure_future((send or node.ask)(create(*NAMES), 7))
    first = await threads.gates.get()
    assert (await node.ask(create("between"))).topics[0].error_code == ErrorCode.NONE
    first.set()
    return large, await threads.gates.get()


async def test_a_large_decision_is_never_made_in_the_event_loop_and_loses_one_race_at_most(
    tmp_path: Path,
) -> None:
    """Requests and periodic tasks wait for its second attempt; requests come first then."""
    async with bench(tmp_path / "data", SESSION) as node:
        with gated_threads() as threads:
            await node.lifecycle.close()
            for _ in range(7):
                node.clock.advance(STEP_MS)
                await turns(node)
            assert not node.controller.image.brokers[1].is_fenced
            large, gate = await last_attempt(node, threads)
            small = asyncio.ensure_future(node.ask(create("after")))
            # The broker's session expires.
            node.clock.advance(STEP_MS)
            await turns(node)
            assert "after" not in node.controller.image.topics
            assert not node.controller.image.brokers[1].is_fenced
            gate.set()
            assert {topic.error_code for topic in (await large).topics} == {ErrorCode.NONE}
            # A fenced broker could not have led it.
            assert [topic.error_code for topic in (await small).topics] == [ErrorCode.NONE]
            await turns(node)
            assert node.image.brokers[1].is_fenced
            assert threads.gates.empty()
            node.check()


async def test_others_wait_no_longer_than_the_request_of_a_large_decision(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", SESSION) as node:
        with gated_threads() as threads:
            large, gate = await last_attempt(node, threads)
            node.clock.advance(20_000)
            await turns(node)
            small = asyncio.ensure_future(node.ask(create("after")))
            await turns(node)
            assert not small.done()
            node.clock.advance(10_001)
            with pytest.raises(KafkaError) as refused:
                await large
            assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert [topic.error_code for topic in (await small).topics] == [ErrorCode.NONE]
            gate.set()
            assert not set(NAMES) & set(node.controller.image.topics)


async def test_large_decisions_take_turns(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", SESSION) as node:
        with gated_threads() as threads:
            asked = [asyncio.ensure_future(node.ask(create(f"own-{n}", *NAMES))) for n in range(3)]
            for _ in asked:
                gate = await threads.gates.get()
                await turns(node)
                assert threads.gates.empty()
                gate.set()
            codes = [
                {topic.name: topic.error_code for topic in (await each).topics} for each in asked
            ]
            assert [codes[n][f"own-{n}"] for n in range(3)] == [ErrorCode.NONE] * 3
            existing = ErrorCode.TOPIC_ALREADY_EXISTS
            assert [code[NAMES[0]] for code in codes] == [ErrorCode.NONE, existing, existing]
            assert threads.gates.empty()
            node.check()


async def test_a_controller_that_stops_meanwhile_decides_nothing_any_more(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", SESSION) as node:
        with gated_threads() as threads:
            await node.lifecycle.close()
            large, gate = await last_attempt(node, threads, node.controller.handle)
            small = asyncio.ensure_future(node.controller.handle(create("after"), 7))
            await turns(node)
            node.controller.close()
            gate.set()
            for refused in await asyncio.gather(large, small, return_exceptions=True):
                assert isinstance(refused, KafkaError)
                assert refused.code is ErrorCode.NOT_CONTROLLER
            assert not {"after", *NAMES} & set(node.controller.image.topics)
