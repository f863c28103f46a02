"""Chooses the partition of the next batch of records without keys (KIP-794): one whose leader is
known and accepts requests, the more likely the less is queued for it.
"""

from collections.abc import Mapping
from random import Random

from moldau.client.cluster.metadata import Partition
from moldau.client.producer.options import EngineOptions
from moldau.client.producer.topics import ProducerTopics
from moldau.core.producer.batching import TopicBuffers
from moldau.core.producer.partitioners import next_sticky
from moldau.core.producer.sending import Sending
from moldau.net.clock import Clock


class StickyChooser:
    """Used by the event loop and by the user's threads."""

    def __init__(
        self,
        topics: ProducerTopics,
        sending: Sending,
        options: EngineOptions,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._topics = topics
        self._sending = sending
        self._options = options
        self._clock = clock
        self._rng = rng

    def choose(self, buffers: TopicBuffers) -> int:
        count = buffers.partition_count
        topic = self._topics.known.get(buffers.name)
        usable = None if topic is None else self._usable(topic.partitions, count)
        waiting: list[int] = []
        if self._options.is_adaptive:
            waiting = self._sending.waiting_by_partition(buffers.name, count)
        return next_sticky(count, self._rng.random(), waiting, usable)

    def _usable(self, partitions: Mapping[int, Partition], count: int) -> list[int]:
        """The partitions whose leader accepts requests; if there are none, all with a leader."""
        # A partition that was just added has no buffer yet.
        led = [number for number, row in partitions.items() if row.leader >= 0 and number < count]
        stalled = self._stalled()
        taking = [number for number in led if partitions[number].leader not in stalled]
        return taking or led

    def _stalled(self) -> set[int]:
        patience_ms = self._options.availability_timeout_ms
        since_ms = self._sending.stalled_since_ms
        if not self._options.is_adaptive or not patience_ms or not since_ms:
            return set()
        limit_ms = self._clock.mono_ms() - patience_ms
        return {node for node, began_ms in since_ms.items() if began_ms < limit_ms}
