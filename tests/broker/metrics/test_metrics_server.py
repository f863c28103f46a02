"""/metrics with many clients, and with slow ones."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from moldau.broker.metrics.server import MetricsServer
from moldau.net.clock import ShiftedClock

GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
MANY = 40


class Page:
    """Blocks until it is released."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.is_asked_for = asyncio.Event()
        self.made = 0

    async def render(self) -> bytes:
        self.made += 1
        self.is_asked_for.set()
        await self.may_end.wait()
        return b"moldau_made %d\n" % self.made


class StandingClock(ShiftedClock):
    def mono_ms(self) -> float:
        return self.ahead_ms


@asynccontextmanager
async def serving(page: Page, clock: ShiftedClock) -> AsyncIterator[MetricsServer]:
    server = MetricsServer("127.0.0.1", 0, clock)
    await server.serve(page.render)
    try:
        async with asyncio.timeout(30):
            yield server
    finally:
        server.close()
        clock.close()


async def connected(
    server: MetricsServer, content: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(content)
    await writer.drain()
    return reader, writer


async def got(server: MetricsServer) -> bytes:
    reader, writer = await connected(server, GET)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_silent_clients_do_not_lock_a_monitor_out() -> None:
    async with serving(Page(), ShiftedClock()) as server:
        silent = [await connected(server, b"GET /metr") for _ in range(MANY)]
        assert b"moldau_made" in await got(server)
        for _reader, writer in silent:
            writer.close()


async def test_the_text_is_made_once_for_concurrent_requests() -> None:
    page, clock = Page(), ShiftedClock()
    page.may_end.clear()
    async with serving(page, clock) as server:
        asking = [asyncio.ensure_future(got(server)) for _ in range(10)]
        await page.is_asked_for.wait()
        clock.advance(5_000)  # Long enough that a late request gets the same text.
        page.may_end.set()
        answers = await asyncio.gather(*asking)
        assert all(b"moldau_made 1\n" in each for each in answers)
        assert page.made == 1


async def test_a_text_that_takes_long_is_used_for_longer() -> None:
    page, clock = Page(), ShiftedClock()
    page.may_end.clear()
    async with serving(page, clock) as server:
        asking = asyncio.ensure_future(got(server))
        await page.is_asked_for.wait()
        clock.advance(5_000)
        page.may_end.set()
        assert b"moldau_made 1\n" in await asking
        clock.advance(40_000)
        assert b"moldau_made 1\n" in await got(server)
        clock.advance(20_000)
        assert b"moldau_made 2\n" in await got(server)


async def test_a_text_that_is_made_quickly_is_never_old() -> None:
    clock = StandingClock()

    class Quick(Page):
        async def render(self) -> bytes:
            clock.advance(50)
            return await super().render()

    async with serving(Quick(), clock) as server:
        assert b"moldau_made 1\n" in await got(server)
        clock.advance(1)
        assert b"moldau_made 2\n" in await got(server)


async def test_a_client_that_leaves_early_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = Page()
    page.may_end.clear()
    async with serving(page, ShiftedClock()) as server:
        _reader, leaving = await connected(server, GET)
        await page.is_asked_for.wait()
        leaving.transport.abort()
        asking = [asyncio.ensure_future(got(server)) for _ in range(MANY)]
        await asyncio.sleep(0)
        page.may_end.set()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert any(isinstance(each, bytes) and b"moldau_made" in each for each in answers)
    assert caplog.text == ""


async def test_a_client_that_does_not_read_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    class Long(Page):
        async def render(self) -> bytes:
            return bytes(64 << 20)

    clock = ShiftedClock()
    async with serving(Long(), clock) as server:
        reader, writer = await connected(server, GET)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        clock.advance(11_000)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionResetError):
            assert len(await reader.read()) < 64 << 20
        writer.close()
    assert caplog.text == ""
