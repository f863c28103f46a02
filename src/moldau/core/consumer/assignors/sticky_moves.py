"""The moves of one assignment. If a partition of a topic moved from A to B and another one is to
move from B to A, the first moves back instead, which saves a move.
"""

from moldau.types import TopicPartition

Pair = tuple[str, str]


class Moves:
    def __init__(self) -> None:
        self._by_topic: dict[str, dict[Pair, dict[TopicPartition, None]]] = {}
        self._by_partition: dict[TopicPartition, Pair] = {}

    def note(self, partition: TopicPartition, old: str, new: str) -> None:
        earlier = self._by_partition.pop(partition, None)
        if earlier is None:
            self._add(partition, (old, new))
            return
        pairs = self._by_topic[partition.topic]
        del pairs[earlier][partition]
        if not pairs[earlier]:
            del pairs[earlier]
        if earlier[0] != new:
            self._add(partition, (earlier[0], new))

    def _add(self, partition: TopicPartition, pair: Pair) -> None:
        self._by_partition[partition] = pair
        self._by_topic.setdefault(partition.topic, {}).setdefault(pair, {})[partition] = None

    def better_choice(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        pairs = self._by_topic.get(partition.topic, {})
        if partition in self._by_partition:
            old = self._by_partition[partition][0]
        reverse = pairs.get((new, old))
        return next(iter(reverse)) if reverse else partition
