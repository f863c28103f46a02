"""The group coordinator of this node: a shard for each partition of __consumer_offsets that it
leads. A request for a group goes to the shard of its partition, or is refused here.
"""

import asyncio
import functools
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, TypeVar

from moldau.broker.coordinators.member_memory import MemberMemory
from moldau.broker.coordinators.runtime import CoordinatorRuntime, ShardKind
from moldau.broker.coordinators.shard_host import HostOptions, HostServices, ShardHost
from moldau.broker.server.deadlines import Deadlines
from moldau.config.values import MINUTE_MS
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.core.coordinator.effects import Append, Marker, Reply, Ticket, Writer
from moldau.core.coordinator.records import CoordinatorRecord
from moldau.core.decision import Decision
from moldau.core.groups.group_records import decode_group_record
from moldau.core.groups.group_shard import GroupShard
from moldau.core.groups.joining import Join
from moldau.core.groups.listing import count_groups, count_members, describe_group
from moldau.core.groups.member import Caller
from moldau.core.groups.responses import join_refused
from moldau.core.groups.settings import PROTOCOLS_MAX, GroupSettings
from moldau.core.groups.turns import GroupTurn
from moldau.net.chance import SYSTEM_CHANCE
from moldau.net.slices import Slices, slices_of
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.delete_groups import DeletableGroupResult
from moldau.protocol.messages.describe_groups import DescribedGroup
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from moldau.protocol.records.compression import Compression
from moldau.types import Uuid

if TYPE_CHECKING:
    from moldau.broker.cluster.metadata_feed import MetadataFeed
    from moldau.broker.replicas.replicas import Replicas
    from moldau.broker.server.context import ConfigHolder
    from moldau.config.broker import BrokerConfig
    from moldau.core.groups.offset_reading import OffsetReading
    from moldau.core.groups.registry import AnyGroup
    from moldau.core.metadata.delta import MetadataDelta
    from moldau.core.metadata.image import MetadataImage
    from moldau.net.clock import Clock

_DELETED_IN_TURN = 20
"""Number of groups; each may have very many offsets."""

GroupHost = ShardHost[GroupShard]
ResponseT = TypeVar("ResponseT")


class GroupCoordinator:
    def __init__(
        self,
        replicas: "Replicas",
        clock: "Clock",
        settings: "ConfigHolder",
        feed: "MetadataFeed",
        *,
        chance: Random = SYSTEM_CHANCE,
    ) -> None:
        self._settings = settings
        self._chance = chance
        self._feed = feed
        kind = ShardKind(
            topic=CONSUMER_OFFSETS,
            partition_count=lambda: settings.current.offsets_topic_num_partitions,
            new_shard=lambda: GroupShard(self._current_group_settings),
            decode=decode_group_record,
        )
        services = HostServices(clock, Deadlines(clock), replicas.cold_reads, self._options)
        self._runtime = CoordinatorRuntime(kind, replicas, feed, services)
        self._member_memory = MemberMemory(clock, self._member_bytes)
        self._config: BrokerConfig | None = None
        self._group_settings = GroupSettings()

    def start(self) -> None:
        """Loads the shards of partitions led now, in the background, and follows later changes."""
        self._runtime.start()
        # Only topics that are deleted from now on matter.
        self._feed.subscribe(self._metadata_changed, self._feed.image)

    async def stop(self) -> None:
        """Called before the replicas stop: waiting clients receive an error and look for another
        coordinator.
        """
        await self._runtime.stop()

    async def wait_loaded(self) -> None:
        """Waits until every shard led now is loaded."""
        await self._runtime.wait_loaded()

    def partition_for(self, group_id: str) -> int:
        return self._runtime.partition_for(group_id)

    def _metadata_changed(self, delta: "MetadataDelta", _: "MetadataImage") -> None:
        deleted = list(delta.deleted_topics.items())
        if deleted:
            for host in self._runtime:
                host.when_loaded(functools.partial(_topics_deleted, host, deleted))

    # Settings

    def _current_group_settings(self) -> GroupSettings:
        config = self._settings.current
        if config is not self._config:
            self._config = config
            self._group_settings = _group_settings(config)
        return self._group_settings

    def _options(self) -> HostOptions:
        config = self._settings.current
        return HostOptions(
            config.offsets_commit_timeout_ms,
            Compression(config.offsets_topic_compression_codec),
            config.group_coordinator_append_linger_ms,
        )

    # Members

    async def join(
        self, request: JoinGroupRequest, version: int, caller: Caller
    ) -> JoinGroupResponse:
        host = self._runtime.of_key(request.group_id)
        if len(request.protocols) > PROTOCOLS_MAX:
            return join_refused(ErrorCode.INVALID_REQUEST, request.member_id)
        # A protocol that is named twice: the first one counts, as in Kafka.
        protocols = {p.name: p.metadata for p in reversed(request.protocols)}
        ordered = dict.fromkeys(p.name for p in request.protocols)
        of_member = tuple((name, protocols[name]) for name in ordered)
        group = host.shard.registry.classic(request.group_id)
        known = None if group is None else group.members.get(request.member_id)
        known_bytes = 0 if known is None else known.weight
        if not self._member_memory.admits(caller, of_member, known_bytes):
            # Clients try again, also at another coordinator.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        # Quoted: the annotations of an inner function are evaluated in every call.
        def event(ticket: "Ticket[JoinGroupResponse]", turn: GroupTurn) -> None:
            join = Join(
                ticket=ticket,
                version=version,
                caller=caller,
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                protocol_type=request.protocol_type,
                protocols=of_member,
                fresh_id=str(uuid.UUID(bytes=self._chance.randbytes(16), version=4)),
            )
            host.shard.classic.join(join, turn)

        return await host.submit(event, depends=False)

    def _member_bytes(self) -> int:
        return sum(
            group.weight for host in self._runtime for group in host.shard.registry.classic_groups()
        )

    async def sync(self, request: SyncGroupRequest, caller: Caller) -> SyncGroupResponse:
        host = self._runtime.of_key(request.group_id)
        return await host.submit(
            lambda ticket, turn: host.shard.classic.sync(request, ticket, caller, turn),
            depends=False,
        )

    def heartbeat(self, request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
        host = self._runtime.of_key(request.group_id)
        return host.run(
            lambda turn: host.shard.classic.heartbeat(request, caller, turn), depends=False
        )

    async def leave(self, group_id: str, members: list[MemberIdentity]) -> LeaveGroupResponse:
        host = self._runtime.of_key(group_id)
        return await host.submit(
            lambda ticket, turn: host.shard.classic.leave(group_id, members, ticket, turn),
            depends=False,
        )

    # Offsets

    async def commit_offsets(
        self, request: OffsetCommitRequest, version: int, caller: Caller
    ) -> OffsetCommitResponse:
        host = self._runtime.of_key(request.group_id)

        def event(ticket: "Ticket[OffsetCommitResponse]", turn: GroupTurn) -> None:
            decision = host.shard.offsets.decide_commit(request, version, caller, turn)
            # Whether a commit is valid does not depend on other commits.
            _write(decision, ticket, turn, may_gather=True)

        return await host.submit(event, depends=False)

    async def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, writer: Writer
    ) -> TxnOffsetCommitResponse:
        """The offsets stay pending until `end_transaction`."""
        host = self._runtime.of_key(request.group_id)

        def event(ticket: "Ticket[TxnOffsetCommitResponse]", turn: GroupTurn) -> None:
            decision = host.shard.offsets.decide_transactional_commit(request, turn.now_ms)
            _write(decision, ticket, turn, writer=writer)

        return await host.submit(event, depends=False)

    def end_transaction(self, index: int, marker: Marker) -> asyncio.Future[None]:
        """Writes the marker into a partition of __consumer_offsets: the offsets that the producer
        has committed there in its transaction become valid or are dropped. Done when the marker
        is committed.
        """
        host = self._runtime.of_partition(index)

        def event(ticket: "Ticket[None]", turn: GroupTurn) -> None:
            turn.append(Append(records=(), marker=marker, replies=[Reply(ticket, None)]))

        return host.submit(event)

    async def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, requires_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Returns committed offsets: never older ones than were acknowledged, nor any that are not
        committed.
        """
        host = self._runtime.of_key(request.group_id)

        def event(ticket: "Ticket[OffsetReading]", turn: GroupTurn) -> None:
            answer = host.shard.offsets.fetch(request, requires_stable=requires_stable)
            turn.append(Append(records=(), replies=[Reply(ticket, answer)]))

        reading = await host.submit(event)
        if not reading.is_complete:
            # The state as of this turn, however long encoding it takes.
            await slices_of(reading.add, reading.parts())
        return reading.response

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        host = self._runtime.of_key(request.group_id)

        def event(ticket: "Ticket[OffsetDeleteResponse]", turn: GroupTurn) -> None:
            _write(host.shard.offsets.decide_delete(request), ticket, turn)

        return await host.submit(event)

    # Administration

    def all_groups(self) -> "list[AnyGroup]":
        if self._runtime.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [group for host in self._runtime.active() for group in host.shard.registry]

    def describe_group(self, group_id: str, version: int) -> DescribedGroup:
        return describe_group(self._runtime.of_key(group_id).shard.registry, group_id, version)

    async def delete_groups(self, group_ids: Iterable[str]) -> list[DeletableGroupResult]:
        """Each group once, however often it is named."""
        results: list[DeletableGroupResult] = []
        seen: set[str] = set()
        by_host: dict[GroupHost, list[str]] = {}

        def find_host(group_id: str) -> None:
            if group_id in seen:
                return
            seen.add(group_id)
            try:
                by_host.setdefault(self._runtime.of_key(group_id), []).append(group_id)
            except KafkaError as error:
                results.append(DeletableGroupResult(group_id=group_id, error_code=error.code))

        await slices_of(find_host, group_ids)
        waiting: list[tuple[list[str], asyncio.Future[list[DeletableGroupResult]]]] = []
        slices = Slices()
        for host, all_ids in by_host.items():
            for start in range(0, len(all_ids), _DELETED_IN_TURN):
                ids = all_ids[start : start + _DELETED_IN_TURN]
                waiting.append((ids, host.submit(functools.partial(_delete_groups, host, ids))))
                if slices.is_over:
                    await slices.next()
        for ids, answer in waiting:
            try:
                results += await answer
            except KafkaError as error:
                results += [DeletableGroupResult(group_id=g, error_code=error.code) for g in ids]
        return results

    # Metrics

    def count_by_state(self) -> Counter[str]:
        return sum(
            (count_groups(host.shard.registry) for host in self._runtime.active()), Counter()
        )

    def member_count(self) -> int:
        return sum(count_members(host.shard.registry) for host in self._runtime.active())

    def committed_offsets(self, count_max: int) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset, at most `count_max` of them. They may change
        meanwhile.
        """
        for host in list(self._runtime.active()):
            entries = list(islice(host.shard.store, count_max))
            count_max -= len(entries)
            for group_id, (topic, partition), committed in entries:
                yield group_id, topic, partition, committed.offset


def _write(
    decision: Decision[CoordinatorRecord, ResponseT],
    ticket: Ticket[ResponseT],
    turn: GroupTurn,
    *,
    may_gather: bool = False,
    writer: Writer | None = None,
) -> None:
    turn.append(
        Append(
            records=decision.records,
            replays=True,
            replies=[Reply(ticket, decision.response)],
            is_atomic=decision.is_atomic,
            may_gather=may_gather,
            writer=writer,
        )
    )


def _delete_groups(
    host: GroupHost,
    group_ids: list[str],
    ticket: Ticket[list[DeletableGroupResult]],
    turn: GroupTurn,
) -> None:
    _write(host.shard.decide_delete_groups(group_ids), ticket, turn)


def _topics_deleted(host: GroupHost, deleted: list[tuple[str, Uuid]]) -> None:
    host.run(lambda turn: host.shard.decide_topics_deleted(deleted, turn))


def _group_settings(config: "BrokerConfig") -> GroupSettings:
    return GroupSettings(
        session_timeout_min_ms=config.group_min_session_timeout_ms,
        session_timeout_max_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        members_max=config.group_max_size,
        offset_metadata_chars_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        offsets_check_interval_ms=config.offsets_retention_check_interval_ms,
    )
