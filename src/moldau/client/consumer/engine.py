"""The consumer in its event loop: subscription, assignment, positions and polling. The blocking and
the asyncio client call it. Methods marked "in the user's thread" run there while no poll waits.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.interceptors import interceptors_of, notify
from moldau.client.cluster.metadata import ClusterMetadata
from moldau.client.cluster.metadata_watch import MetadataWatch
from moldau.client.cluster.settings import cluster_settings
from moldau.client.consumer.committing import Committing
from moldau.client.consumer.errors import WakeupError
from moldau.client.consumer.fetching import Fetching
from moldau.client.consumer.group import Group
from moldau.client.consumer.missing_positions import MissingPositions
from moldau.client.consumer.options import fetch_options, group_options
from moldau.client.errors import ClientError, ClientTimeoutError, ClosedError, ConfigError
from moldau.config.client_settings.consumer import ConsumerConfig
from moldau.core.consumer.commits import AutoCommit
from moldau.core.consumer.membership import Assigned, Prepare, Subscribed
from moldau.core.consumer.positions import OffsetAndMetadata, PartitionState, Positions
from moldau.core.consumer.resets import ResetPolicy
from moldau.protocol.errors import MoldauError
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.types import TopicPartition

_log = logging.getLogger(__name__)

CallUser = Callable[..., Awaitable[Any]]
"""Calls a function of the user in the user's own thread or task, and waits for it."""


# Methods of a user's rebalance listener, the preferred one first.
_ASSIGNED = ("on_partitions_assigned",)
_REVOKED = ("on_partitions_revoked",)
_LOST = ("on_partitions_lost", "on_partitions_revoked")


class Engine:
    def __init__(self, config: ConsumerConfig, call_user: CallUser) -> None:
        self.config = config
        self._call_user = call_user
        self.cluster = Cluster(cluster_settings(config, retry_for_ms=config.default_api_timeout_ms))
        self.positions = Positions()
        self._options = fetch_options(config)
        membership = group_options(config)
        self._watch = MetadataWatch(self.cluster, creates_topics=config.allow_auto_create_topics)
        self.fetching = Fetching(
            self.cluster, self._watch, self.positions, self._options, self.changed
        )
        self.fetching.on_room = self.fetch_soon
        counts = self.fetching.counts
        self.group = None if membership is None else Group(self.cluster, membership, self, counts)
        self.committing = Committing(
            self.cluster,
            self.positions,
            self.group,
            AutoCommit(
                is_enabled=config.enable_auto_commit and self.group is not None,
                interval_ms=config.auto_commit_interval_ms,
            ),
            counts,
            self.changed,
        )
        self._missing = MissingPositions(
            self.cluster, self.positions, self.fetching, self._options.reset, self.changed
        )
        if self.group is not None:
            self._missing.committed = self.committing.committed
        self.interceptors = interceptors_of(config.interceptor_classes)
        self.committing.interceptors = self.interceptors
        self.before_use: Callable[[], None] = lambda: None
        """Updates the positions after a loop over records, which does not report each record."""
        self.topics: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        self._listener: Any = None
        self._change = asyncio.Event()
        self._polled_ms = 0.0
        self.is_polling = False
        self._must_wake = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False
        self.is_closed = False
        self._warned: set[str] = set()

    # Life.

    def start(self) -> None:
        """Begins in the running event loop. The first request opens the first connection."""
        if self.is_closed:
            raise ClosedError("this consumer is closed")
        self.before_use()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            self._polled_ms = self.cluster.clock.mono_ms()
            self._watch.on_update(self._note_metadata)
            self._watch.start()
        elif self._loop is not loop:
            raise ClientError("a consumer belongs to the event loop that it was first used in")

    async def close(self, patience_ms: float) -> None:
        """Commits, leaves the group and closes all connections. Closing twice does nothing."""
        if self._is_closing:
            return
        self._is_closing = True
        self.before_use()
        try:
            if self._loop is not None:
                async with self.cluster.clock.timeout(patience_ms):
                    await self._commit_and_leave(patience_ms)
        except (TimeoutError, MoldauError) as error:
            _log.warning("closing the consumer was cut short: %s", error)
        finally:
            self.is_closed = True
            await self.fetching.close()
            await self._missing.close()
            if self.group is not None:
                await self.group.drop()
            await self.cluster.__aexit__(None, None, None)
            self.changed()

    async def _commit_and_leave(self, patience_ms: float) -> None:
        problem: Exception | None = None
        try:
            await self._revoke_all(patience_ms)
            await self.committing.finish(patience_ms)
            await self._run_commit_callbacks()
        except Exception as error:  # noqa: BLE001 - from a listener or a callback
            problem = error
        if self.group is not None:
            await self.group.leave()
        if problem is not None:
            raise problem

    async def _revoke_all(self, patience_ms: float) -> None:
        partitions = self.positions.partitions
        if self.group is None or not self.group.machine.owned:
            await self.committing.before_revocation(partitions, patience_ms)
        else:
            await self.revoke(Prepare(partitions, False))
        self.positions.remove(partitions)

    def changed(self) -> None:
        self._change.set()

    def wakeup(self) -> None:
        """Makes the current or the next poll raise WakeupError. Any thread may call it."""
        self._must_wake = True
        if self._loop is not None and not self.is_closed:
            with contextlib.suppress(RuntimeError):
                # The loop may be closed at this moment.
                self._loop.call_soon_threadsafe(self._change.set)

    # Subscription and assignment.

    def subscribe(
        self, topics: Collection[str], pattern: re.Pattern[str] | None, listener: Any
    ) -> None:
        self.start()
        if self.group is None:
            raise ConfigError("subscribing needs a group.id; without one, use assign")
        if self.positions.partitions and not self.is_subscribed:
            raise ClientError("partitions are assigned by hand; unsubscribe before subscribing")
        self._listener = listener
        self.pattern = pattern
        self.topics = tuple(dict.fromkeys(topics))
        self._polled_ms = self.cluster.clock.mono_ms()
        if pattern is None:
            self._watch.watch_only(self.topics)
            self.group.step(Subscribed(self.topics))
        else:
            self._watch.watch_only(None)

    @property
    def is_subscribed(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    async def unsubscribe(self) -> None:
        self.start()
        await self._revoke_all(self.config.request_timeout_ms)
        if self.group is not None:
            self.group.step(Subscribed(()))
            await self.group.leave()
        self.topics = ()
        self.pattern = None
        self._watch.watch_only(())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.start()
        if self.is_subscribed:
            raise ClientError("topics are subscribed; unsubscribe before assigning by hand")
        wanted = [TopicPartition(*partition) for partition in partitions]
        self.committing.commit_now()
        self._take(wanted)

    def _take(self, partitions: Iterable[TopicPartition]) -> None:
        self.positions.assign(partitions)
        self.committing.auto.keep_only(self.positions.partitions)
        self.committing.auto.start(self.cluster.clock.mono_ms())
        if not self.is_subscribed:
            self._watch.watch_only({partition.topic for partition in self.positions.partitions})
        self._missing.find()
        self.fetching.fetch_more()

    # What the group calls.

    @property
    def polled_ms(self) -> float:
        return self.cluster.clock.mono_ms() if self.is_polling else self._polled_ms

    async def revoke(self, effect: Prepare) -> None:
        if effect.revoked and not effect.is_lost:
            await self.committing.before_revocation(effect.revoked, self.config.request_timeout_ms)
        try:
            if effect.revoked:
                names = _LOST if effect.is_lost else _REVOKED
                await self._call_listener(names, effect.revoked)
        finally:
            self.positions.remove(effect.revoked)

    def watch_topics(self, topics: Collection[str]) -> None:
        self._watch.watch(topics)

    def refresh_soon(self) -> None:
        self._watch.refresh_soon()

    async def accept_assignment(self, effect: Assigned) -> None:
        if effect.revoked:
            await self.revoke(Prepare(effect.revoked, False))
        self._take(effect.partitions)
        await self._call_listener(_ASSIGNED, effect.added)

    async def _call_listener(
        self, names: tuple[str, ...], partitions: tuple[TopicPartition, ...]
    ) -> None:
        """Calls the first of these methods that the user's listener has."""
        methods = (getattr(self._listener, name, None) for name in names)
        method = next((method for method in methods if method is not None), None)
        if method is not None:
            await self._call_user(method, list(partitions))

    # Metadata.

    def _note_metadata(self, found: ClusterMetadata) -> None:
        if self.pattern is not None and self.group is not None:
            skips_internal = self.config.exclude_internal_topics
            matching = [
                name
                for name, topic in sorted(found.topics.items())
                if self.pattern.fullmatch(name) and not (topic.is_internal and skips_internal)
            ]
            self.group.step(Subscribed(tuple(matching)))
        if self.group is not None:
            self.group.note_metadata(found)
        self._note_problems(found)
        if not found.topics.keys() >= set(self.topics):
            # It may be created, or get a leader, at any moment.
            self._watch.refresh_soon()
        self.changed()
        self.fetching.fetch_more()

    def _note_problems(self, found: ClusterMetadata) -> None:
        for name in found.missing - self._warned:
            self._warned.add(name)
            _log.warning("topic '%s' does not exist yet", name)
        read = {*self.topics, *(partition.topic for partition in self.positions.partitions)}
        for name, error in found.failures.items():
            if name in read and not self.cluster.is_retriable(error):
                self.fetching.fail(error)

    # Polling.

    def take_now(self, count: int) -> list[ConsumerRecord] | None:
        """In the user's thread: returns records that have arrived already; None if `poll` must be
        called.
        """
        if not self.begin_taking():
            return None
        records, has_room = self.fetching.take(count)
        if has_room:
            self.fetch_soon()
        return self._intercepted(records) if records else None

    def begin_taking(self) -> bool:
        """In the user's thread: whether it may take records without the duties of a poll."""
        if self._must_wake or self.is_closed or self.committing.for_user:
            return False
        if self.group is not None and self.group.needs_user:
            return False
        now_ms = self.cluster.clock.mono_ms()
        if self.committing.auto.is_due(now_ms):
            return False
        self._polled_ms = now_ms
        return True

    def fetch_soon(self) -> None:
        """Lets the event loop check for room to fetch more. Any thread may call it."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.fetching.fetch_more)

    async def poll(self, timeout_ms: float, count: int) -> list[ConsumerRecord]:
        """At least one record, unless none arrived in time."""
        records: list[ConsumerRecord] = []

        def take() -> bool:
            taken, has_room = self.fetching.take(count)
            records.extend(taken)
            if has_room:
                self.fetching.fetch_more()
            return bool(taken)

        await self.wait_until(take, timeout_ms)
        return self._intercepted(records)

    async def wait_until(self, take: Callable[[], bool], timeout_ms: float) -> bool:
        """Does the duties of a poll until `take` succeeds. Returns False if the time runs out
        first.
        """
        self.start()
        if not self.is_subscribed and not len(self.positions):
            raise ClientError("nothing is subscribed or assigned; there is nothing to poll")
        if self.is_polling:
            raise ClientError("another poll of this consumer is running")
        deadline_ms = self.cluster.clock.mono_ms() + timeout_ms
        self.is_polling = True
        try:
            # A user that polls without waiting must not stop fetches and heartbeats.
            await asyncio.sleep(0)
            while True:
                self._change.clear()
                await self._do_duties()
                if take():
                    return True
                left_ms = deadline_ms - self.cluster.clock.mono_ms()
                if left_ms <= 0:
                    return False
                await self._wait_for_change(left_ms)
        finally:
            self.is_polling = False
            self._polled_ms = self.cluster.clock.mono_ms()

    async def _do_duties(self) -> None:
        if self.is_closed:
            raise ClosedError("this consumer is closed")
        if self._must_wake:
            self._must_wake = False
            raise WakeupError("wakeup() was called")
        await self._run_commit_callbacks()
        if self.group is not None and self.is_subscribed:
            await self.group.advance()
        self.committing.commit_if_due()
        self.fetching.raise_error()
        self._missing.find()

    async def _run_commit_callbacks(self) -> None:
        while self.committing.for_user:
            callback, offsets, problem = self.committing.for_user.popleft()
            await self._call_user(callback, offsets, problem)

    async def _wait_for_change(self, left_ms: float) -> None:
        """Waits for a change, or until the time is over or the next automatic commit is due."""
        clock = self.cluster.clock
        until_commit_ms = self.committing.auto.due_ms - clock.mono_ms()
        pause_ms = min(left_ms, max(until_commit_ms, 0))
        timer = clock.call_later(pause_ms, self._change.set)
        try:
            await self._change.wait()
        finally:
            timer.cancel()

    def _intercepted(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for interceptor in self.interceptors:
            changed = notify(interceptor, "on_consume", records)
            records = records if changed is None else changed
        return records

    async def until_known(self, partition: TopicPartition, patience_ms: float) -> int:
        """The position in a partition; waits until it is known."""
        self.start()
        clock = self.cluster.clock
        deadline_ms = clock.mono_ms() + patience_ms
        while True:
            state = self.state_of(partition)
            if state.position is not None:
                return state.position
            self._change.clear()
            self.fetching.raise_error()
            self._missing.find()
            left_ms = deadline_ms - clock.mono_ms()
            if left_ms <= 0:
                raise ClientTimeoutError(f"the position in {partition} was not found in time")
            await self._wait_for_change(left_ms)

    def seek(self, partition: TopicPartition, at: OffsetAndMetadata) -> None:
        self.start()
        self.state_of(partition).seek(at.offset, at.leader_epoch)
        self.fetching.fetch_more()

    def reset(self, partitions: Iterable[TopicPartition], policy: ResetPolicy) -> None:
        self.start()
        for state in [self.state_of(partition) for partition in partitions]:
            state.request_reset(policy)
        self.fetching.fetch_more()

    def pause(self, partitions: Collection[TopicPartition], *, is_paused: bool) -> None:
        """Pauses or resumes partitions, or all assigned ones if `partitions` is empty."""
        self.start()
        for state in [self.state_of(partition) for partition in partitions] or list(self.positions):
            state.is_paused = is_paused
        self.fetching.set_paused_aside()
        self.fetching.fetch_more()

    @property
    def subscribed_topics(self) -> tuple[str, ...]:
        if self.pattern is None or self.group is None:
            return self.topics
        return self.group.machine.topics

    def metrics(self) -> dict[str, float]:
        states = list(self.positions)
        return {
            **self.fetching.counts.named(),
            "assigned_partitions": len(states),
            "buffered_bytes": sum(state.buffered_bytes for state in states),
            "records_lag_max": max((state.lag or 0 for state in states), default=0),
        }

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        self.start()
        return (await self.cluster.topic(topic)).topic_partitions

    def state_of(self, partition: TopicPartition) -> PartitionState:
        state = self.positions.get(TopicPartition(*partition))
        if state is None:
            raise ClientError(f"{partition[0]}-{partition[1]} is not assigned to this consumer")
        return state
