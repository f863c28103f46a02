"""After any mixture of commits, transaction ends and deletions, a group reads the offsets of a
plain model, before and after a restart; and compaction of the log changes nothing.
"""

from core.groups.bench import CALLER, Bench, replay_log
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from moldau.core.coordinator.effects import Marker
from moldau.core.coordinator.records import StoredPair, encode_record
from moldau.core.groups.group_records import offset_tombstone
from moldau.core.groups.group_shard import GroupShard
from moldau.core.groups.settings import GroupSettings
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.types import NO_PRODUCER_ID

GROUPS = st.sampled_from(["g", "h"])
TOPICS = st.sampled_from(["t", "u"])
PARTITIONS = st.integers(0, 1)
PRODUCERS = st.integers(7, 9)
PLACES = [(group, topic, index) for group in "gh" for topic in "tu" for index in (0, 1)]

Place = tuple[str, str, int]
Stored = tuple[int, int]
"""An offset, and the position of its record in the log."""


class OffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.committed: dict[Place, Stored] = {}
        self.pending: dict[int, dict[Place, Stored]] = {}
        self.offsets = 0

    def _next_offset(self) -> int:
        self.offsets += 1
        return self.offsets

    @rule(group=GROUPS, topic=TOPICS, index=PARTITIONS)
    def commit(self, group: str, topic: str, index: int) -> None:
        offset = self._next_offset()
        self.committed[group, topic, index] = offset, len(self.bench.log)
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
        request = OffsetCommitRequest(group_id=group, topics=topics)
        self.bench.commit(request, CALLER)

    @rule(group=GROUPS, topic=TOPICS, index=PARTITIONS, producer=PRODUCERS)
    def commit_in_transaction(self, group: str, topic: str, index: int, producer: int) -> None:
        offset = self._next_offset()
        stored = offset, len(self.bench.log)
        self.pending.setdefault(producer, {})[group, topic, index] = stored
        partition = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])]
        request = TxnOffsetCommitRequest(group_id=group, producer_id=producer, topics=topics)
        self.bench.commit_in_transaction(request)

    @rule(producer=PRODUCERS, commits=st.booleans())
    def end(self, producer: int, commits: bool) -> None:
        """Ends the transaction, possibly for the second time."""
        self.bench.end_transaction(producer, commits=commits)
        for place, stored in self.pending.pop(producer, {}).items():
            known = self.committed.get(place)
            if commits and (known is None or known[1] < stored[1]):
                self.committed[place] = stored

    @rule(group=GROUPS, topic=TOPICS, index=PARTITIONS)
    def delete_offset(self, group: str, topic: str, index: int) -> None:
        if self.bench.shard.registry.get(group) is None:
            return
        partitions = [OffsetDeleteRequestPartition(partition_index=index)]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        decision = self.bench.shard.offsets.decide_delete(
            OffsetDeleteRequest(group_id=group, topics=topics)
        )
        self.bench.write(list(decision.records))
        self._forget((group, topic, index))

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.bench.delete_groups(group)
        self._forget(*(place for place in PLACES if place[0] == group))

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.bench.delete_topic(topic)
        self._forget(*(place for place in PLACES if place[1] == topic))

    @rule()
    def restart(self) -> None:
        self.bench.load()

    def _forget(self, *places: Place) -> None:
        for place in places:
            for offsets in (self.committed, *self.pending.values()):
                offsets.pop(place, None)

    @invariant()
    def reads_what_is_committed(self) -> None:
        self._check(self.bench.shard)

    @invariant()
    def compaction_changes_nothing(self) -> None:
        """Up to where a transaction is open, the cleaner keeps the last record of each key that is
        committed.
        """
        fresh = GroupShard(GroupSettings)
        replay_log(fresh, *_compacted(self.bench))
        self._check(fresh)

    def _check(self, shard: GroupShard) -> None:
        open_places = {place for offsets in self.pending.values() for place in offsets}
        for place in PLACES:
            offset = self.committed.get(place, (-1, 0))[0]
            assert _fetched(shard, place, stable=False) == offset, place
            stable = ErrorCode.UNSTABLE_OFFSET_COMMIT if place in open_places else offset
            assert _fetched(shard, place, stable=True) == stable, place


def _fetched(shard: GroupShard, place: Place, *, stable: bool) -> int:
    group, topic, index = place
    requested = OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
    request = OffsetFetchRequestGroup(group_id=group, topics=[requested])
    answer = shard.offsets.fetch(request, requires_stable=stable).response
    found = answer.topics[0].partitions[0]
    return found.error_code or found.committed_offset


def _compacted(bench: Bench) -> tuple[list[StoredPair | Marker], dict[int, int]]:
    """Compacts like the cleaner. A removed record is replaced by an empty one, so that every
    other one keeps its offset.
    """
    open_since: dict[int, int] = {}
    outcome: dict[int, bool] = {}
    for offset, entry in enumerate(bench.log):
        if isinstance(entry, Marker):
            outcome |= {
                at: entry.commits
                for at in range(open_since.pop(entry.producer_id, offset), offset)
                if bench.producers.get(at) == entry.producer_id
            }
        elif (producer_id := bench.producers.get(offset, NO_PRODUCER_ID)) != NO_PRODUCER_ID:
            open_since.setdefault(producer_id, offset)
    stable_end = min(open_since.values(), default=len(bench.log))
    last: dict[bytes, int] = {}
    for offset, entry in enumerate(bench.log[:stable_end]):
        if isinstance(entry, StoredPair) and outcome.get(offset, True):
            last[entry.key] = offset
    log = [
        entry
        if at >= stable_end or isinstance(entry, Marker) or last.get(entry.key) == at
        else _NOTHING
        for at, entry in enumerate(bench.log)
    ]
    return log, bench.producers


_NOTHING = encode_record(offset_tombstone("missing", "nothing", 0))


def test_offsets_in_transactions() -> None:
    run_state_machine_as_test(
        OffsetsMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
