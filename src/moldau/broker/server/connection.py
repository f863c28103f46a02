"""One connection: frames in, responses out in the order of their requests.

Requests are begun one after the other, as in Kafka; only a staged one (Produce) lets the next begin
before it is answered. A client that sends much at once is served a slice at a time, in turns with
the others. One that sends faster than it is answered, or does not read its responses, is slowed
down by TCP: reading pauses, memory stays bounded.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from moldau.broker.server.context import Peer, Staged
from moldau.broker.server.dispatch import Begun, Dispatcher
from moldau.broker.server.exchange import (
    Exchange,
    answer_chunks,
    outcome_of,
    serve_large_query,
    task_of,
    write_large,
)
from moldau.broker.server.large_messages import AT_ONCE
from moldau.broker.server.memory_budget import TIGHT_READ_BYTES, Holder
from moldau.broker.server.outbox import Outbox
from moldau.broker.server.turns import SLICE_MS
from moldau.net.frame_reader import READ_BYTES_MAX, FrameReader
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.wire.codec import MessageTooLargeError
from moldau.protocol.wire.frame import ResponseTooLongError
from moldau.protocol.wire.schema import Message
from moldau.unexpected import log_unexpected

if TYPE_CHECKING:
    from moldau.broker.server.large_messages import LargeMessages
    from moldau.broker.server.listener import Listener
    from moldau.types import Buffer

_log = logging.getLogger(__name__)

STAGED_MAX = 100
"""Requests of one connection that may wait for their second stage together."""
_WAITING_BYTES_MAX = 64 * 1024
"""Bytes that may wait for an earlier request, or for the connection's turn. Above it reading
pauses; below it continues, since only reading detects that the client has gone.
"""
_UNSENT_BYTES_MAX = 16 * 1024
"""Unsent bytes of responses beyond which they count, and no further request is begun."""


class Connection(asyncio.BufferedProtocol, Holder):
    def __init__(self, listener: "Listener", dispatcher: Dispatcher) -> None:
        Holder.__init__(self, listener.budget, is_privileged=listener.is_privileged)
        self._listener = listener
        self._dispatcher = dispatcher
        self._clock = listener.clock
        self._turns = listener.turns
        self._flush_backlog = listener.flush_backlog
        self._frames = FrameReader(listener.scratch, listener.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._exchanges: deque[Exchange] = deque()
        self._busy = 0
        self._is_closing = False
        self._is_finishing = False
        self._is_at_end = False
        self._is_reading = True
        self._is_queued = False
        self._waiting_bytes = 0
        self._outbox = Outbox()
        self._frame_started_ms: float | None = None
        self._read_began_ms: float | None = None
        self._reading_paused_ms = 0.0
        self.slices_cut = 0
        """Since the listener's last sweep."""
        self.served_ms = 0.0
        self.last_active_ms = self._clock.mono_ms()
        self.is_throttled = False
        self.peer: Peer | None = None

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport, they only behave like one.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)
        self.peer = self._listener.admit(self, self._transport)
        if self.peer is None:
            self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_closing = True
        self._listener.connection_closed(self)
        self.hold_nothing()
        self._waiting_bytes = 0
        for exchange in self._exchanges:
            if exchange.task is not None and not exchange.is_being_appended:
                exchange.task.cancel()
        self._exchanges.clear()

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self.unfinished_bytes:
            # Reading a large frame takes time, too.
            self._read_began_ms = self._clock.mono_ms()
        try:
            return self._frames.buffer(
                TIGHT_READ_BYTES if self._budget.is_tight else READ_BYTES_MAX
            )
        except MalformedRequestError as error:
            self._refuse(error)
            return self._listener.scratch

    def buffer_updated(self, count: int) -> None:
        if self._is_closing:
            return
        now_ms = self.last_active_ms = self._clock.mono_ms()
        self._listener.metrics.bytes_in += count
        frame = self._frames.only_frame(count)
        if (
            frame is not None
            and not self._is_queued
            and self._turns.may_begin(self.served_ms)
            and not self._is_backlogged()
        ):
            self._serve_single_frame(frame, now_ms)
            return
        self._frames.received(count)
        if self._read_began_ms is not None:
            self._turns.used(self, now_ms - self._read_began_ms)
            self._read_began_ms = None
        self._proceed(now_ms)

    def eof_received(self) -> bool:
        """A producer with acks=0 closes after its last request: waiting ones are served first."""
        is_waiting = self._is_queued or (self._is_backlogged() and self._waiting_bytes > 0)
        self._is_at_end = is_waiting or any(each.is_being_appended for each in self._exchanges)
        return self._is_at_end

    def pause_writing(self) -> None:
        self._outbox.unread_since_ms = self._clock.mono_ms()
        if self._transport is not None:
            self.hold_answers(self._transport.get_write_buffer_size())
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._outbox.unread_since_ms = None
        self.hold_answers(0)
        self._continue()

    # Taking turns

    def _proceed(self, now_ms: float) -> None:
        """Serves what has arrived, now or when it is this connection's turn."""
        if not self._frames.waiting_bytes:
            pass
        elif self._is_queued or self._is_backlogged():
            self._frames.keep()
        elif self._turns.may_begin(self.served_ms):
            self._serve_slice(now_ms)
        else:
            self._frames.keep()
            self._queue()
        self._update(now_ms)

    def take_turn(self) -> None:
        self._is_queued = False
        if not self._is_closing:
            now_ms = self._clock.mono_ms()
            if not self._is_backlogged():
                self._serve_slice(now_ms)
            self._update(now_ms)
            self._end_if_served()

    def _end_if_served(self) -> None:
        """Closes the connection of a client that sends no more."""
        if self._is_at_end and not self._is_queued and not self._is_backlogged():
            self._close()

    def _queue(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._turns.join(self)

    def _serve_single_frame(self, frame: memoryview, now_ms: float) -> None:
        """A shortcut for the usual case: one request, and nothing else is waiting or unfinished."""
        self._serve_or_end(frame, now_ms)
        if self.last_active_ms == now_ms:
            # It is not answered yet, or the clock stands still.
            self.last_active_ms = self._clock.mono_ms()
        self._turns.used(self, self.last_active_ms - now_ms)
        self._flush()
        self._adjust_reading()

    def _next_frame(self) -> memoryview | None:
        try:
            return self._frames.next_frame()
        except MalformedRequestError as error:
            self._refuse(error)
            return None

    def _serve_or_end(self, frame: memoryview, now_ms: float) -> None:
        try:
            self._serve(frame, now_ms)
        except MalformedRequestError as error:
            self._refuse(error)
        except Exception as error:  # noqa: BLE001 - the turn may belong to another connection
            log_unexpected(_log, "a request, which ends its connection,", error)
            self.abort()

    def _serve_slice(self, began_ms: float) -> None:
        frames, clock = self._frames, self._clock
        now_ms, end_ms = began_ms, began_ms + SLICE_MS
        while not self._is_backlogged() and (frame := self._next_frame()) is not None:
            self._serve_or_end(frame, now_ms)
            now_ms = clock.mono_ms()
            if now_ms >= end_ms:
                break
        self._turns.used(self, clock.mono_ms() - began_ms)  # Also if no frame was complete.
        frames.keep()
        if frames.waiting_bytes and not self._is_backlogged():
            self.slices_cut += 1
            self._queue()

    def _update(self, now_ms: float) -> None:
        """Writes what was answered, counts what is held, and reads on if there is room."""
        self._flush()
        frames = self._frames
        if self._is_closing:
            return
        waiting = frames.waiting_bytes
        if waiting != self._waiting_bytes:
            self.hold(waiting - self._waiting_bytes)
            self._waiting_bytes = waiting
        unfinished = frames.unfinished_bytes
        if unfinished != self.unfinished_bytes:
            self.hold_unfinished(unfinished)
        if not unfinished:
            self._frame_started_ms = None
        else:
            if self._frame_started_ms is None:
                self._frame_started_ms = now_ms
            if self._turns.is_over:
                self._queue()
        self._adjust_reading()

    # Serving

    def _serve(self, frame: memoryview, now_ms: float) -> None:
        assert self.peer is not None
        self.peer.is_answered_later = bool(self._exchanges)
        begun = self._dispatcher.begin(self.peer, frame)
        outcome = begun.outcome
        is_answered = outcome is None or isinstance(outcome, Message)
        if is_answered and not self._exchanges and self._try_to_send(begun, outcome, now_ms):
            return
        exchange = Exchange(begun, len(frame), now_ms)
        if is_answered:
            exchange.answer = outcome
            exchange.is_done = True
            exchange.count_records()
        elif isinstance(outcome, Staged):
            self._wait(exchange, outcome.answer)
        else:
            self._busy += 1
            if exchange.is_large_query:
                outcome = serve_large_query(exchange, self._listener, *self._writing)
            self._wait(exchange, outcome)
        self.hold(exchange.bytes)
        self._exchanges.append(exchange)
        if is_answered and len(self._exchanges) == 1:
            self._write_large(exchange)

    def _wait(self, exchange: Exchange, answer: Awaitable[Message | Staged | None]) -> None:
        task = exchange.task = task_of(exchange, answer, self._listener)
        task.add_done_callback(lambda task: self._answered(exchange, task))

    def _answered(
        self, exchange: Exchange, task: "asyncio.Future[Message | Staged | None]"
    ) -> None:
        if not isinstance(exchange.begun.outcome, Staged):
            self._busy -= 1
        if self._is_closing or task.cancelled():
            if not task.cancelled():
                task.exception()
            elif exchange.is_large_query:
                # Its turn may not have come.
                exchange.begun.outcome.close()
            self._close()
            return
        try:
            answer = outcome_of(exchange.begun, task)
        except MalformedRequestError as error:
            # The traceback refers to the task, which refers to it: a cycle with the request.
            self._refuse(error.with_traceback(None))
            return
        if isinstance(answer, Staged):
            # It has taken its place: the rest of its response delays no other request.
            exchange.begun.outcome = answer
            self._wait(exchange, answer.answer)
        else:
            exchange.answer = answer
            exchange.is_done = True
            if exchange is not self._exchanges[0]:
                self.hold(exchange.count_records())
        self._continue()

    def _continue(self) -> None:
        """Sends what is ready, then begins what waits."""
        if self._is_closing:
            return
        try:
            while self._exchanges and self._exchanges[0].is_done:
                exchange = self._exchanges[0]
                if not self._try_to_send(*exchange.to_send):
                    self._write_large(exchange)
                    break
                self._exchanges.popleft()
                self.hold(-exchange.bytes)
                if self.large_bytes and self._outbox.unread_since_ms is None:
                    # The client has read it.
                    self.hold_answers(0)
        except MalformedRequestError as error:
            self._refuse(error)
            return
        self._proceed(self._clock.mono_ms())
        if self._is_finishing and not self._exchanges:
            self._close()
        self._end_if_served()

    def _try_to_send(
        self,
        begun: Begun,
        answer: Message | None,
        started_ms: float,
        chunks: "list[Buffer] | None" = None,
    ) -> bool:
        """False if this response is too large to be encoded here and now."""
        if answer is not None and chunks is None:
            bytes_max = self._budget.answer_bytes_at_once
            try:
                chunks = answer_chunks(begun, answer, bytes_max, budget=AT_ONCE)
            except (MessageTooLargeError, ResponseTooLongError):
                return False
        now_ms = self.last_active_ms = self._clock.mono_ms()
        metrics = self._listener.metrics
        metrics.request_served(begun.api_key, now_ms - started_ms, answer is not None)
        if chunks is not None and self._outbox.add(chunks):
            self._flush()
            self.last_active_ms = self._clock.mono_ms()
        return True

    def _write_large(self, exchange: Exchange) -> None:
        """Encodes a large response in a thread. The next request waits, to bound the memory."""
        exchange.is_done = False
        exchange.begun.outcome = None
        self._busy += 1
        if exchange.answer is not None and exchange.begun.api_key is not ApiKey.FETCH:
            exchange.charge(exchange.answer, self)
        self._wait(exchange, write_large(exchange, *self._writing))

    @property
    def _writing(self) -> "tuple[LargeMessages, Holder, Callable[[ResponseTooLongError], None]]":
        """The arguments for writing large responses."""
        return self._dispatcher.large, self, self._too_long

    def _too_long(self, error: ResponseTooLongError) -> None:
        self._listener.held_back(self, "answer", str(error))

    def _flush(self) -> None:
        if self._outbox and self._transport is not None and not self._is_closing:
            self._listener.metrics.bytes_out += self._outbox.write_to(self._transport)
            if self._outbox.unread_since_ms is not None:
                self.hold_answers(self._transport.get_write_buffer_size())

    # Back-pressure

    def _is_backlogged(self) -> bool:
        """True if no further request may begin."""
        return (
            self._busy > 0
            or self._is_closing
            or self._is_finishing
            or self.is_throttled
            or self._is_full()
        )

    def _is_full(self) -> bool:
        return (
            self._outbox.unread_since_ms is not None
            or len(self._exchanges) >= STAGED_MAX
            or self.held_bytes - self._waiting_bytes >= self._listener.held_bytes_max
            or (self._flush_backlog.is_full and self._flush_backlog.refuses(self))
        )

    @property
    def wanted_bytes(self) -> int:
        return self._frames.wanted_bytes

    @property
    def parked_since_ms(self) -> float | None:
        if not self._busy or self._exchanges[0].begun.api_key is ApiKey.PRODUCE:
            return None
        return self._exchanges[0].started_ms

    def _adjust_reading(self) -> None:
        if self._is_closing or self._transport is None:
            return
        should_read = not (
            self._waiting_bytes > _WAITING_BYTES_MAX
            or self._is_full()
            or (self._is_queued and self.unfinished_bytes)
            or self.is_throttled
            or (self._budget.is_tight and self._budget.refuses(self))
        )
        if should_read != self._is_reading:
            self._is_reading = should_read
            now_ms = self._clock.mono_ms()
            if should_read:
                # The client is not responsible for the time in between.
                if self._frame_started_ms is not None:
                    self._frame_started_ms += now_ms - self._reading_paused_ms
                self.last_active_ms = now_ms
                self._transport.resume_reading()
            else:
                self._reading_paused_ms = now_ms
                self._transport.pause_reading()

    def resume(self) -> None:
        """Continues to read: there is memory again, or the disk has caught up."""
        self._continue()

    def throttle_is_over(self) -> None:
        self.is_throttled = False
        self._continue()

    # Closing

    def check_deadlines(self, now_ms: float) -> None:
        """Called by the listener periodically."""
        listener = self._listener
        unread_bytes = 0
        if self._outbox.unread_since_ms is not None and self._transport is not None:
            unread_bytes = self._transport.get_write_buffer_size()
            self.hold_answers(unread_bytes)
        if self._outbox.unread_for_ms(now_ms, unread_bytes) > listener.unread_deadline_ms:
            self._refuse(MalformedRequestError("the client does not read its answers"), abort=True)
        elif (
            self._frame_started_ms is not None
            and self._is_reading
            and now_ms - self._frame_started_ms > listener.frame_deadline_ms
        ):
            self._refuse(MalformedRequestError("a frame did not arrive in time"))
        elif self.is_idle(now_ms, listener.idle_ms):
            self._close()
        elif self._budget.is_hog(self, now_ms):
            self.cut_off("memory is short, and this client holds much of it")

    def is_idle(self, now_ms: float, patience_ms: float) -> bool:
        """Whether it has sent nothing for `patience_ms`, and waits for nothing."""
        is_waiting = bool(self._exchanges) or self._waiting_bytes > 0
        return not is_waiting and now_ms - self.last_active_ms > patience_ms

    def is_stalled(self, now_ms: float, patience_ms: float) -> bool:
        if self._outbox.unread_since_ms is not None:
            return self._outbox.is_stalled(now_ms, patience_ms)
        is_awaited = self._frame_started_ms is not None and self._is_reading
        return is_awaited and now_ms - self.last_active_ms > patience_ms

    def cut_off(self, reason: str) -> None:
        """Closes this connection in favour of others."""
        self._listener.held_back(self, "memory", f"disconnected: {reason}")
        self.abort()

    def finish(self) -> None:
        """Closes after the requests in progress are answered. No further one is begun."""
        self._is_finishing = True
        if not self._exchanges:
            self._close()

    def abort(self) -> None:
        """Closes at once, even with requests in progress."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, error: MalformedRequestError, *, abort: bool = False) -> None:
        if not self._is_closing:
            self._listener.refused(self, str(error))
        if abort:
            self.abort()
        else:
            self._close()

    def _close(self) -> None:
        if self._transport is not None and not self._is_closing:
            self._flush()
            self._is_closing = True
            self._transport.close()
