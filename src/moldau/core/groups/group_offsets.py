"""Decisions about committed offsets: commits, fetches, deletions and expiry."""

from collections.abc import Callable, Iterable, Iterator

from moldau.core.coordinator.records import CoordinatorRecord
from moldau.core.decision import Decision
from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.foreign_group import ForeignKind
from moldau.core.groups.group_records import offset_record, offset_tombstone
from moldau.core.groups.member import Caller
from moldau.core.groups.offset_reading import AT_ONCE_MAX, OffsetReading
from moldau.core.groups.offsets import NO_EXPIRY, CommittedOffset, OffsetStore
from moldau.core.groups.rebalancing import expect_heartbeat
from moldau.core.groups.registry import AnyGroup, GroupRegistry
from moldau.core.groups.settings import GroupSettings
from moldau.core.groups.states import GroupState
from moldau.core.groups.turns import GroupTurn
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records.offset_commit import OffsetCommitValue
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from moldau.types import INT64_MAX, ZERO_UUID, TopicPartition, Uuid

_LATEST_MS = INT64_MAX
GROUP_ID_NOT_FOUND_FROM = 9
"""The first OffsetCommit version whose clients know the error GROUP_ID_NOT_FOUND."""


class GroupOffsets:
    def __init__(
        self,
        registry: GroupRegistry,
        store: OffsetStore,
        settings: Callable[[], GroupSettings],
    ) -> None:
        self._registry = registry
        self._store = store
        self._settings = settings

    # Committing

    def decide_commit(
        self, request: OffsetCommitRequest, version: int, caller: Caller, turn: GroupTurn
    ) -> Decision[CoordinatorRecord, OffsetCommitResponse]:
        """The caller has checked that the topics exist and has set both name and id. Raises
        KafkaError if nothing can be committed.
        """
        self._check_committer(request, version, caller, turn)
        metadata_max = self._settings().offset_metadata_chars_max
        kept_ms = request.retention_time_ms
        # A client may request an unlimited time, and its end must fit into 64 bits.
        expire_ms = NO_EXPIRY if kept_ms == NO_EXPIRY else min(turn.now_ms + kept_ms, _LATEST_MS)
        by_partition: dict[tuple[str, int], tuple[OffsetCommitRequestPartition, Uuid]] = {}
        topics: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            results: list[OffsetCommitResponsePartition] = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = ErrorCode.NONE
                if len(partition.committed_metadata or "") > metadata_max:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    # If a partition is named twice, the last one counts; Kafka writes both.
                    by_partition[topic.name, index] = (partition, topic.topic_id)
                results.append(
                    OffsetCommitResponsePartition(partition_index=index, error_code=code)
                )
            topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=results
                )
            )
        records = [
            offset_record(
                request.group_id,
                *partition_key,
                _value_of(partition, topic_id, turn.now_ms, expire_ms),
            )
            for partition_key, (partition, topic_id) in by_partition.items()
        ]
        return Decision(OffsetCommitResponse(topics=topics), records)

    def _check_committer(
        self, request: OffsetCommitRequest, version: int, caller: Caller, turn: GroupTurn
    ) -> None:
        group = self._registry.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            # A consumer that assigns its own partitions needs no group.
            if generation >= 0:
                has_code = version >= GROUP_ID_NOT_FOUND_FROM
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND if has_code else ErrorCode.ILLEGAL_GENERATION
                )
        elif not isinstance(group, ClassicGroup):
            if generation >= 0 or not group.is_empty:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        elif generation >= 0 or group.state is not GroupState.EMPTY:
            _check_member(group, request, caller)
            if group.state is not GroupState.COMPLETING_REBALANCE:
                expect_heartbeat(group, group.members[request.member_id], turn)

    # Committing in a transaction

    def decide_transactional_commit(
        self, request: TxnOffsetCommitRequest, now_ms: int
    ) -> Decision[CoordinatorRecord, TxnOffsetCommitResponse]:
        """The offsets take effect when the transaction is committed. Raises KafkaError if nothing
        can be part of it.
        """
        self._check_transactional_committer(request)
        metadata_max = self._settings().offset_metadata_chars_max
        by_partition: dict[tuple[str, int], TxnOffsetCommitRequestPartition] = {}
        topics: list[TxnOffsetCommitResponseTopic] = []
        for topic in request.topics:
            results: list[TxnOffsetCommitResponsePartition] = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = ErrorCode.NONE
                if len(partition.committed_metadata or "") > metadata_max:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    by_partition[topic.name, index] = partition
                results.append(
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
        # As in Kafka, transactional commits have no topic id.
        records = [
            offset_record(
                request.group_id, *partition_key, _value_of(partition, ZERO_UUID, now_ms, NO_EXPIRY)
            )
            for partition_key, partition in by_partition.items()
        ]
        return Decision(TxnOffsetCommitResponse(topics=topics), records)

    def _check_transactional_committer(self, request: TxnOffsetCommitRequest) -> None:
        """Since KIP-447 producers name the member that they commit for, which fences zombies. Older
        ones are fenced only by their transactional id.
        """
        group = self._registry.get(request.group_id)
        generation, member_id = request.generation_id, request.member_id
        names_member = generation >= 0 or member_id != "" or request.group_instance_id is not None
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not isinstance(group, ClassicGroup):
            if group.kind is ForeignKind.SHARE:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            if names_member and (generation >= 0 or not group.is_empty):
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        elif names_member and (generation >= 0 or group.state is not GroupState.EMPTY):
            # The producer's principal may differ from the consumer's.
            error = group.member_error(member_id, request.group_instance_id, None)
            if error is None and generation != group.generation:
                error = ErrorCode.ILLEGAL_GENERATION
            if error is not None:
                raise KafkaError(error)

    # Fetching

    def fetch(self, request: OffsetFetchRequestGroup, *, requires_stable: bool) -> OffsetReading:
        """A small reading is complete; a large one is a copy that the caller reads in parts."""
        reading = OffsetReading(self._store, request, requires_stable=requires_stable)
        if reading.size > AT_ONCE_MAX:
            reading.detach()
        else:
            reading.read_all()
        return reading

    # Deleting

    def decide_delete(
        self, request: OffsetDeleteRequest
    ) -> Decision[CoordinatorRecord, OffsetDeleteResponse]:
        """Raises KafkaError if none of the group's offsets may be deleted."""
        group = self._registry.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ClassicGroup):
            refuses = group.state is not GroupState.EMPTY and not group.is_consumers
        else:
            # The subscriptions of a foreign group's members are unknown.
            refuses = not group.is_empty
        if refuses:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        is_subscribed = _subscription_of(group)
        deleted: dict[TopicPartition, None] = {}
        topics: list[OffsetDeleteResponseTopic] = []
        for topic in request.topics:
            subscribed = is_subscribed(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            results: list[OffsetDeleteResponsePartition] = []
            for partition in topic.partitions:
                index = partition.partition_index
                results.append(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                )
                partition_key = TopicPartition(topic.name, index)
                if not subscribed and self._has_any(request.group_id, partition_key):
                    deleted[partition_key] = None
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
        records = [offset_tombstone(request.group_id, *partition_key) for partition_key in deleted]
        return Decision(OffsetDeleteResponse(topics=topics), records)

    def _has_any(self, group_id: str, partition: TopicPartition) -> bool:
        offsets = self._store.of_group(group_id).get(partition.topic, {})
        return partition.partition in offsets or self._store.is_pending(group_id, partition)

    def tombstones_of_group(self, group_id: str) -> Iterator[CoordinatorRecord]:
        committed = {
            TopicPartition(topic, partition)
            for topic, offsets in self._store.of_group(group_id).items()
            for partition in offsets
        }
        for partition_key in sorted(committed.union(self._store.pending_of_group(group_id))):
            yield offset_tombstone(group_id, *partition_key)

    def tombstones_of_topics(
        self, deleted: Iterable[tuple[str, Uuid]]
    ) -> Iterator[CoordinatorRecord]:
        for name, topic_id in deleted:
            for group_id, partition in self._store.of_topic(name, topic_id):
                yield offset_tombstone(group_id, name, partition)

    # Expiring

    def expired_of_group(
        self, group: AnyGroup, now_ms: int
    ) -> tuple[list[CoordinatorRecord], bool]:
        """Tombstones of expired offsets, and whether no offsets are left."""
        group_id = group.group_id
        by_topic = self._store.of_group(group_id)
        pending = self._store.pending_of_group(group_id)
        if not by_topic:
            return [], not pending
        since = _expiry_counts_from(group)
        if since is None:
            return [], False
        is_subscribed = _subscription_of(group)
        retention_ms = self._settings().offsets_retention_ms
        tombstones: list[CoordinatorRecord] = []
        is_all_expired = not pending
        for topic, offsets in by_topic.items():
            if is_subscribed(topic):
                is_all_expired = False
                continue
            for partition, committed in offsets.items():
                due_ms = committed.expire_ms
                if due_ms == NO_EXPIRY:
                    due_ms = since(committed) + retention_ms
                if due_ms <= now_ms and TopicPartition(topic, partition) not in pending:
                    tombstones.append(offset_tombstone(group_id, topic, partition))
                else:
                    is_all_expired = False
        return tombstones, is_all_expired


def _check_member(group: ClassicGroup, request: OffsetCommitRequest, caller: Caller) -> None:
    generation = request.generation_id_or_member_epoch
    member_id, instance_id = request.member_id, request.group_instance_id
    if generation < 0 and member_id == "" and instance_id is None:
        # A client outside of a group that has members.
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    error = group.member_error(member_id, instance_id, caller.principal)
    if error is None and generation != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is None and group.state is GroupState.COMPLETING_REBALANCE:
        # The member has a new generation without an assignment: its commit is for the old one.
        error = ErrorCode.REBALANCE_IN_PROGRESS
    if error is not None:
        raise KafkaError(error)


def _value_of(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: Uuid,
    now_ms: int,
    expire_ms: int,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )


def _subscription_of(group: AnyGroup) -> Callable[[str], bool]:
    """Consumers with an unknown subscription may be subscribed to any topic."""
    topics = group.subscribed_topics() if isinstance(group, ClassicGroup) else frozenset[str]()
    if topics is not None:
        return topics.__contains__
    is_consumers = isinstance(group, ClassicGroup) and group.is_consumers
    return lambda _: is_consumers


def _expiry_counts_from(group: AnyGroup) -> Callable[[CommittedOffset], int] | None:
    """The time from which an offset counts as unused; None if the group's offsets do not expire."""
    if not isinstance(group, ClassicGroup):
        return _commit_time if group.is_empty else None
    if group.protocol_type is None:
        return _commit_time
    if group.state is GroupState.EMPTY:
        since_ms = group.state_since_ms
        return _commit_time if since_ms is None else lambda _: since_ms
    if group.is_consumers and group.state is GroupState.STABLE:
        # For topics that no member is subscribed to.
        return _commit_time
    return None


def _commit_time(committed: CommittedOffset) -> int:
    return committed.commit_ms
