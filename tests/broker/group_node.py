"""A data node with a group coordinator: real logs, real handlers, no network."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from broker.data_node import DataNode

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.coordinators.groups import GroupCoordinator
from moldau.broker.handlers.table import broker_table
from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from moldau.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from moldau.protocol.wire.schema import Message

OFFSETS_TOPIC_NUMBER = 200
QUICK = {"group.initial.rebalance.delay.ms": "0"}


class GroupNode(DataNode):
    """Has __consumer_offsets with a few partitions, and a topic t with four."""

    def __init__(self, path: Path, **options: Any) -> None:
        settings: Mapping[str, str] = QUICK | dict(options.pop("settings", {}))
        super().__init__(path, settings=settings, **options)
        self.feed = MetadataFeed()
        self._table = broker_table()

    async def start(self) -> None:
        await super().start()
        self.start_groups()

    def start_groups(self) -> None:
        self.groups = GroupCoordinator(self.replicas, self.clock, self.settings, self.feed)
        self.groups.start()

    async def stop(self) -> None:
        await self.groups.stop()
        await super().stop()

    async def crash(self) -> None:
        await self.groups.stop()
        await super().crash()

    def commit(self, *records: Message) -> None:
        super().commit(*records)
        self.feed.on_snapshot(self.image)

    def create_offsets_topic(self, partitions: int = 4, **configs: str) -> None:
        kept = {"cleanup.policy": "compact"} | {k.replace("_", "."): v for k, v in configs.items()}
        self.create_topic(
            CONSUMER_OFFSETS, number=OFFSETS_TOPIC_NUMBER, partitions=partitions, configs=kept
        )

    def context(
        self, request: Message, version: int | None = None, *, privileged: bool = False
    ) -> RequestContext:
        context = super().context(request, version, privileged=privileged)
        context.broker.groups = self.groups
        return context

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Through the handler, like the dispatcher."""
        context = self.context(request, version)
        outcome: Any = self._table.handler(ApiKey(request.API_KEY))(context, request)
        return outcome if isinstance(outcome, Message) else await outcome

    # Shorthands for requests

    async def join(self, group: str, member_id: str = "", **fields: Any) -> JoinGroupResponse:
        protocols = fields.pop("protocols", {"range": b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"})
        version = fields.pop("version", None)
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            session_timeout_ms=fields.pop("session_timeout_ms", 10_000),
            rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", 60_000),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols.items()],
            **fields,
        )
        response: JoinGroupResponse = await self.ask(request, version)
        return response

    async def sync(
        self, group: str, joined: JoinGroupResponse, **assignments: bytes
    ) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment)
                for member, assignment in zip(joined.members, assignments.values(), strict=False)
            ],
        )
        response: SyncGroupResponse = await self.ask(request)
        return response

    async def new_member(self, group: str, **fields: Any) -> JoinGroupResponse:
        """Joins with the member id that the coordinator assigns."""
        first = await self.join(group, **fields)
        return await self.join(group, first.member_id, **fields)

    async def heartbeat(self, group: str, joined: JoinGroupResponse) -> int:
        request = HeartbeatRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
        )
        response: HeartbeatResponse = await self.ask(request)
        return response.error_code

    async def commit_offset(
        self,
        group: str,
        offset: int,
        joined: JoinGroupResponse | None = None,
        *,
        topic: str = "t",
        partition: int = 0,
    ) -> int:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1 if joined is None else joined.generation_id,
            member_id="" if joined is None else joined.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        response: OffsetCommitResponse = await self.ask(request, 9)
        return response.topics[0].partitions[0].error_code

    async def fetch_offset(self, group: str, *, topic: str = "t", partition: int = 0) -> int:
        requested = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[requested])]
        )
        response: OffsetFetchResponse = await self.ask(request, 9)
        assert response.groups[0].error_code == 0, response
        return response.groups[0].topics[0].partitions[0].committed_offset


@contextlib.asynccontextmanager
async def running_groups(path: Path, **options: Any) -> AsyncIterator[GroupNode]:
    node = GroupNode(path, **options)
    await node.start()
    node.create_offsets_topic()
    node.create_topic("t", number=1, partitions=4)
    try:
        yield node
    finally:
        await node.stop()
