"""The group coordinator of this node: a shard for each partition of __consumer_offsets that it
leads. What a group is asked goes to the shard of its partition, or is refused here.
"""

import functools
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from moldau.broker.coordinator_shard import HostOptions, HostServices, HostState, ShardHost
from moldau.core.controller.topic_names import CONSUMER_OFFSETS
from moldau.core.coordinator.effects import Append, Reply, Ticket, Turn
from moldau.core.coordinator.placement import partition_for
from moldau.core.coordinator.records import CoordinatorRecord
from moldau.core.decision import Decision
from moldau.core.groups.group_records import decode_group_record
from moldau.core.groups.joining import Join
from moldau.core.groups.listing import count_groups, count_members, describe_group, list_groups
from moldau.core.groups.member import Caller
from moldau.core.groups.settings import GroupSettings
from moldau.core.groups.shard import GroupShard
from moldau.net.tasks import Tasks
from moldau.protocol.compression import Compression
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.delete_groups import DeletableGroupResult
from moldau.protocol.messages.describe_groups import DescribedGroup
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.types import Uuid

if TYPE_CHECKING:
    from moldau.broker.context import ConfigHolder
    from moldau.broker.metadata_feed import MetadataFeed
    from moldau.broker.partition import Partition
    from moldau.broker.replicas import Replicas
    from moldau.config.broker import BrokerConfig
    from moldau.core.metadata.delta import MetadataDelta
    from moldau.core.metadata.image import MetadataImage
    from moldau.net.clock import Clock

_MINUTE_MS = 60_000

GroupHost = ShardHost[GroupShard]
ResponseT = TypeVar("ResponseT")


class GroupCoordinator:
    def __init__(
        self,
        replicas: "Replicas",
        clock: "Clock",
        settings: "ConfigHolder",
        feed: "MetadataFeed",
    ) -> None:
        self._replicas = replicas
        self._settings = settings
        self._feed = feed
        self._hosts: dict[int, GroupHost] = {}
        self._tasks = Tasks()
        self._services = HostServices(clock, replicas.deadlines, self._options)
        self._config: BrokerConfig | None = None
        self._group_settings = GroupSettings()

    # Which shards there are

    def start(self) -> None:
        """Loads what is led here now, in the background, and follows what comes."""
        self._replicas.on_leadership(self._leadership_changed)
        self._feed.subscribe(self._metadata_changed)

    async def stop(self) -> None:
        """Before the replicas stop: whoever waits is told to look elsewhere."""
        await self._tasks.close()
        for index in list(self._hosts):
            self._hosts.pop(index).unload()

    async def wait_loaded(self) -> None:
        """Until everything that is led here now can be asked."""
        for host in list(self._hosts.values()):
            await host.wait_loaded()

    def _leadership_changed(self, partition: "Partition", leads: bool) -> None:
        topic, index = partition.topic_partition
        if topic != CONSUMER_OFFSETS:
            return
        host = self._hosts.get(index)
        if host is not None:
            if leads and host.goes_on_leading(partition):
                return
            del self._hosts[index]
            host.unload()
        if leads:
            self._load(partition)

    def _load(self, partition: "Partition") -> None:
        shard = GroupShard(self._current_group_settings)
        host = GroupHost(shard, partition, decode_group_record, self._services)
        self._hosts[partition.topic_partition.partition] = host
        if partition.has_log and host.is_empty:
            host.activate()
        else:
            _ = self._tasks.start(host.load(), f"load-{partition.topic_partition}")

    def _metadata_changed(self, delta: "MetadataDelta", _: "MetadataImage") -> None:
        deleted = list(delta.deleted_topics.items())
        if deleted:
            for host in self._hosts.values():
                host.when_loaded(functools.partial(_topics_deleted, host, deleted))

    def partition_for(self, group_id: str) -> int:
        topic = self._feed.image.topic(CONSUMER_OFFSETS)
        count = len(topic.partitions) if topic is not None else 0
        return partition_for(group_id, count or self._settings.current.offsets_topic_num_partitions)

    def _host(self, group_id: str) -> GroupHost:
        host = self._hosts.get(self.partition_for(group_id))
        if host is None or host.state in {HostState.FAILED, HostState.CLOSED}:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if host.state is HostState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return host

    def _active(self) -> Iterator[GroupHost]:
        return (host for host in self._hosts.values() if host.state is HostState.ACTIVE)

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
        host = self._host(request.group_id)
        # A name twice: the first counts, as in Kafka.
        protocols = {p.name: p.metadata for p in reversed(request.protocols)}
        ordered = dict.fromkeys(p.name for p in request.protocols)

        def event(ticket: Ticket, turn: Turn) -> None:
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
                protocols=tuple((name, protocols[name]) for name in ordered),
                fresh_id=str(uuid.uuid4()),
            )
            host.shard.classic.join(join, turn)

        response: JoinGroupResponse = await host.ask(event, depends=False)
        return response

    async def sync(self, request: SyncGroupRequest, caller: Caller) -> SyncGroupResponse:
        host = self._host(request.group_id)
        response: SyncGroupResponse = await host.ask(
            lambda ticket, turn: host.shard.classic.sync(request, ticket, caller, turn),
            depends=False,
        )
        return response

    def heartbeat(self, request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
        host = self._host(request.group_id)
        return host.run(
            lambda turn: host.shard.classic.heartbeat(request, caller, turn), depends=False
        )

    async def leave(self, group_id: str, members: list[MemberIdentity]) -> LeaveGroupResponse:
        host = self._host(group_id)
        response: LeaveGroupResponse = await host.ask(
            lambda ticket, turn: host.shard.classic.leave(group_id, members, ticket, turn),
            depends=False,
        )
        return response

    # Offsets

    async def commit_offsets(
        self, request: OffsetCommitRequest, version: int, caller: Caller
    ) -> OffsetCommitResponse:
        host = self._host(request.group_id)

        def event(ticket: Ticket, turn: Turn) -> None:
            decision = host.shard.offsets.decide_commit(request, version, caller, turn)
            # Whether a commit counts does not depend on other commits.
            _write(decision, ticket, turn, may_gather=True)

        response: OffsetCommitResponse = await host.ask(event, depends=False)
        return response

    async def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, requires_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Never less than what somebody was told is committed, nor more than what is."""
        host = self._host(request.group_id)

        def event(ticket: Ticket, turn: Turn) -> None:
            answer = host.shard.offsets.fetch(request, requires_stable=requires_stable)
            turn.append(Append(records=(), replies=[Reply(ticket, answer)]))

        response: OffsetFetchResponseGroup = await host.ask(event)
        return response

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        host = self._host(request.group_id)

        def event(ticket: Ticket, turn: Turn) -> None:
            _write(host.shard.offsets.decide_delete(request), ticket, turn)

        response: OffsetDeleteResponse = await host.ask(event)
        return response

    # Administration

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        if any(host.state is HostState.LOADING for host in self._hosts.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [
            listed
            for host in self._active()
            for listed in list_groups(
                host.shard.registry, request.states_filter, request.types_filter
            )
        ]

    def describe_group(self, group_id: str, version: int) -> DescribedGroup:
        return describe_group(self._host(group_id).shard.registry, group_id, version)

    async def delete_groups(self, group_ids: Iterable[str]) -> list[DeletableGroupResult]:
        results: list[DeletableGroupResult] = []
        by_host: dict[GroupHost, list[str]] = {}
        for group_id in group_ids:
            try:
                by_host.setdefault(self._host(group_id), []).append(group_id)
            except KafkaError as error:
                results.append(DeletableGroupResult(group_id=group_id, error_code=error.code))
        waiting = [
            (asked, host.ask(functools.partial(_delete_groups, host, asked)))
            for host, asked in by_host.items()
        ]
        for asked, answer in waiting:
            try:
                results += await answer
            except KafkaError as error:
                results += [DeletableGroupResult(group_id=g, error_code=error.code) for g in asked]
        return results

    # Numbers

    def count_by_state(self) -> Counter[str]:
        return sum((count_groups(host.shard.registry) for host in self._active()), Counter())

    def member_count(self) -> int:
        return sum(count_members(host.shard.registry) for host in self._active())

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition, offset."""
        for host in self._active():
            for group_id, (topic, partition), committed in host.shard.store:
                yield group_id, topic, partition, committed.offset


def _write(
    decision: Decision[CoordinatorRecord, ResponseT],
    ticket: Ticket,
    turn: Turn,
    *,
    may_gather: bool = False,
) -> None:
    turn.append(
        Append(
            records=decision.records,
            replays=True,
            replies=[Reply(ticket, decision.response)],
            is_atomic=decision.is_atomic,
            may_gather=may_gather,
        )
    )


def _delete_groups(host: GroupHost, group_ids: list[str], ticket: Ticket, turn: Turn) -> None:
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
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        offsets_check_interval_ms=config.offsets_retention_check_interval_ms,
    )
