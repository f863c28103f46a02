"""The metadata of the topics that a producer writes to: requested with the first record, after
errors, and regularly.
"""

import logging
from collections.abc import Callable, Collection, Mapping

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import Topic
from moldau.client.errors import ClientTimeoutError, NoBrokerError, UnknownTopicError
from moldau.net.request_channel import ChannelError
from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import TopicPartition

_log = logging.getLogger(__name__)


class ProducerTopics:
    def __init__(
        self, cluster: Cluster, tasks: Tasks, max_age_ms: float, on_change: Callable[[Topic], None]
    ) -> None:
        """`max_age_ms`: when metadata is refreshed without another reason."""
        self._cluster = cluster
        self._tasks = tasks
        self._max_age_ms = max_age_ms
        self._on_change = on_change
        self._is_closed = False

    @property
    def known(self) -> Mapping[str, Topic]:
        return self._cluster.known.topics

    def leader_of(self, partition: TopicPartition) -> int | None:
        found = self._cluster.known.leader_of(partition)
        return None if found is None else found[0]

    async def refresh(self, names: Collection[str]) -> set[str]:
        """Requests metadata once. Returns the topics that do not exist; raises all other errors."""
        found = await self._cluster.metadata(list(names), create=True)
        for name in found.topics:
            self._on_change(self.known[name])
        return set(found.missing)

    async def ensure(self, name: str, deadline_ms: float, backoff_ms: float) -> Topic:
        """Waits until a topic is known. Brokers may create a missing one."""
        clock = self._cluster.clock
        problem: MoldauError | None = None
        while True:
            left_ms = deadline_ms - clock.mono_ms()
            if left_ms <= 0:
                raise _too_long(name, problem)
            try:
                async with clock.timeout(left_ms):
                    missing = await self.refresh([name])
            except TimeoutError:
                raise _too_long(name, problem) from None
            except (KafkaError, ChannelError, NoBrokerError) as error:
                if not self._cluster.is_retriable(error) and not isinstance(error, NoBrokerError):
                    raise
                problem = error
            else:
                if name in self.known and name not in missing and self.known[name].partitions:
                    return self.known[name]
                problem = UnknownTopicError(name)
            await clock.sleep(min(backoff_ms, max(deadline_ms - clock.mono_ms(), 0)))

    def renew_later(self, name: str) -> None:
        """Refreshes a topic regularly: brokers do not report added partitions."""

        def renew() -> None:
            if not self._is_closed:
                _ = self._tasks.start(self._renew(name), "producer: refresh metadata")

        self._cluster.clock.call_later(self._max_age_ms, renew)

    async def _renew(self, name: str) -> None:
        try:
            await self.refresh([name])
        except MoldauError as error:
            _log.debug("the metadata request failed: %s", error)
        self.renew_later(name)

    def close(self) -> None:
        self._is_closed = True


def _too_long(name: str, problem: MoldauError | None) -> MoldauError:
    if problem is None:
        return ClientTimeoutError(f"topic '{name}': no broker answered within max.block.ms")
    if isinstance(problem, UnknownTopicError):
        return problem
    return ClientTimeoutError(
        f"topic '{name}': not done within max.block.ms; last error: {problem}"
    )
