"""The scenarios of groups (see core/groups/scenario.py) over the wire, with a live node of either
kind. Each client has a connection of its own; after the dashes are the responses that are received.

Here also:  z lists  |  z describes g  |  z deletes g  |  a drops t-0   and v= with most actions.
Group names are unique for each conversation; topics are those of the node.
"""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from core.groups.scenario import DASHES, Client, Scenario, blocks_of
from support.running_node import fresh_name
from support.wire_client import WireClient

from moldau.core.coordinator.effects import AnyTicket, Ticket
from moldau.core.groups.joining import Join
from moldau.core.groups.member import Caller
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.wire.schema import Message

_GROUPS_FROM = 8
AT_ONCE_S = 0.4


class WireBench:
    """Sends the requests of the scenario's bench; responses are read on demand."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._connections: dict[str, WireClient] = {}
        self._tickets = 0
        self._expected: dict[str, list[tuple[AnyTicket, Message, int]]] = {}
        self.answers: list[tuple[AnyTicket, Any]] = []

    def close(self) -> None:
        """Closes the connections; the next request opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, name: str) -> WireClient:
        if name not in self._connections:
            self._connections[name] = WireClient(self.address, client_id=name)
        return self._connections[name]

    def hear(self, name: str) -> None:
        """Read the next response that this client waits for."""
        waiting = self._expected.get(name)
        assert waiting, f"{name} waits for nothing"
        ticket, request, version = waiting.pop(0)
        _, answer = self.connection(name).receive(ApiKey(request.API_KEY), version)
        self.answers.append((ticket, answer))

    def has_answer(self, name: str, timeout_s: float) -> bool:
        return self.waits(name) and self.connection(name).has_answer(timeout_s)

    def waits(self, name: str) -> bool:
        return bool(self._expected.get(name))

    def deafen(self, name: str) -> None:
        """The client gives up and closes its connection."""
        self._expected.pop(name, None)
        connection = self._connections.pop(name, None)
        if connection is not None:
            connection.close()

    def ticket(self) -> AnyTicket:
        self._tickets += 1
        return Ticket(self._tickets)

    def send(
        self,
        name: str,
        request: Message,
        version: int | None = None,
        ticket: AnyTicket | None = None,
    ) -> AnyTicket:
        version = request.VERSIONS[1] if version is None else version
        self.connection(name).send(request, version)
        ticket = self.ticket() if ticket is None else ticket
        self._expected.setdefault(name, []).append((ticket, request, version))
        return ticket

    def join(self, join: Join) -> None:
        request = JoinGroupRequest(
            group_id=join.group_id,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            member_id=join.member_id,
            group_instance_id=join.instance_id,
            protocol_type=join.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in join.protocols],
        )
        self.send(join.caller.client_id, request, join.version, join.ticket)

    def sync(self, request: SyncGroupRequest, caller: Caller) -> AnyTicket:
        return self.send(caller.client_id, request)

    def heartbeat(self, request: HeartbeatRequest, caller: Caller) -> AnyTicket:
        return self.send(caller.client_id, request)

    def commit(self, request: OffsetCommitRequest, caller: Caller, version: int = 9) -> AnyTicket:
        return self.send(caller.client_id, request, version)


class Conversation(Scenario):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.wire = WireBench(address)
        self.bench = self.wire  # type: ignore[assignment]
        self._fresh = fresh_name("talk")
        self._ids: dict[str, str] = {}

    def go_to(self, address: str) -> None:
        """The same clients continue with another node."""
        self.wire.close()
        self.wire.address = address

    def _client(self, name: str) -> Client:
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = Client(name, group_id=self._named("g"))
        return client

    def _named(self, group: str) -> str:
        return f"{self._fresh}-{group}" if group else ""

    def _act(self, client: Client, action: str, words: list[str]) -> None:
        words = [f"group={self._named(w[6:])}" if w.startswith("group=") else w for w in words]
        special: dict[str, Callable[[Client, list[str]], None]] = {
            "leaves": self._leave,
            "fetches": self._fetch,
            "drops": self._drop_offsets,
            "lists": self._list,
            "describes": self._describe,
            "deletes": self._delete,
            "finds": self._find,
        }
        if action in special:
            special[action](client, words)
        elif action == "breaks":
            self.wire.deafen(client.name)
        else:
            super()._act(client, action, words)

    def run(self, line: str) -> None:
        """A response that arrives at once is read at once, so that the next request comes
        after it.
        """
        name, *rest = line.split()
        if name == "after":
            threading.Event().wait(int(rest[0]) / 1000)
            return
        super().run(line)
        if self.wire.has_answer(name, AT_ONCE_S):
            self.hear([name])

    def hear(self, names: list[str]) -> None:
        for name in names:
            self.wire.hear(name)
        self._show_answers()

    def name_of(self, member_id: str) -> str:  # type: ignore[override]
        """Ids are random: the name is that of the client that received the id."""
        for client in self.clients.values():
            if client.member_id == member_id and member_id:
                self._ids[member_id] = client.name
        known = self._ids.get(member_id)
        if known is not None:
            return known
        # The owner has not read its own response yet: the id starts with the client's or the
        # instance's name.
        start = _client_part(member_id)
        named = [c.name for c in self.clients.values() if c.instance_id == start]
        return named[-1] if named else start

    def names_of(self, member_ids: Iterable[str]) -> list[str]:
        """Apache Kafka returns them in no particular order."""
        return sorted(super().names_of(member_ids))

    # Actions that the core's scenarios send directly to the shard

    def _leave(self, client: Client, words: list[str]) -> None:
        options = dict(w.split("=", 1) for w in words if w.startswith("v="))
        names = [w for w in words if not w.startswith("v=")]
        leaving = [
            MemberIdentity(member_id="", group_instance_id=name.removeprefix("static="))
            if name.startswith("static=")
            else MemberIdentity(member_id=self._id_of(name))
            for name in names or [client.name]
        ]
        request = LeaveGroupRequest(group_id=client.group_id)
        version = int(options.get("v", "5"))
        if version < 3:
            request.member_id = leaving[0].member_id
        else:
            request.members = leaving
        self._sent(client, "leaves", self.wire.send(client.name, request, version))

    def _fetch(self, client: Client, words: list[str]) -> None:
        options = dict(w.split("=", 1) for w in words if "=" in w)
        version = int(options.get("v", "9"))
        places = [w.rsplit("-", 1) for w in words if "=" not in w and w != "stable"]
        request = OffsetFetchRequest(require_stable="stable" in words)
        group_id = options.get("group", client.group_id)
        if version >= _GROUPS_FROM:
            topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=[int(index)])
                for name, index in places
            ]
            request.groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics or None)]
        else:
            request.group_id = group_id
            old = [
                OffsetFetchRequestTopic(name=name, partition_indexes=[int(index)])
                for name, index in places
            ]
            request.topics = old or None
        self._sent(client, "fetches", self.wire.send(client.name, request, version))

    def _drop_offsets(self, client: Client, words: list[str]) -> None:
        request = OffsetDeleteRequest(
            group_id=client.group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=int(index))]
                )
                for name, index in (w.rsplit("-", 1) for w in words)
            ],
        )
        self._sent(client, "drops", self.wire.send(client.name, request))

    def _list(self, client: Client, words: list[str]) -> None:
        options = dict(w.split("=", 1) for w in words)
        request = ListGroupsRequest(
            states_filter=options["states"].split(",") if "states" in options else [],
            types_filter=options["types"].split(",") if "types" in options else [],
        )
        self._sent(client, "lists", self.wire.send(client.name, request))

    def _describe(self, client: Client, words: list[str]) -> None:
        version = next((int(w[2:]) for w in words if w.startswith("v=")), 6)
        groups = [self._named(w) for w in words if not w.startswith("v=")]
        request = DescribeGroupsRequest(groups=groups)
        self._sent(client, "describes", self.wire.send(client.name, request, version))

    def _delete(self, client: Client, words: list[str]) -> None:
        request = DeleteGroupsRequest(groups_names=[self._named(w) for w in words])
        self._sent(client, "deletes", self.wire.send(client.name, request))

    def _find(self, client: Client, words: list[str]) -> None:
        version = next((int(w[2:]) for w in words if w.startswith("v=")), 6)
        kind = next((int(w[5:]) for w in words if w.startswith("type=")), 0)
        request = FindCoordinatorRequest(key_type=kind)
        if version < 4:
            request.key = client.group_id
        else:
            request.coordinator_keys = [client.group_id]
        self._sent(client, "finds", self.wire.send(client.name, request, version))

    # Text form of responses

    def _show(self, client: Client, action: str, answer: Any) -> str:
        shown = {
            "fetches": self._show_fetched,
            "drops": _show_dropped,
            "lists": self._show_listed,
            "describes": self._show_described,
            "deletes": self._show_deleted,
            "finds": _show_found,
        }.get(action)
        if shown is not None:
            return f"{client.name} {action}: {shown(answer)}"
        if action == "commits":
            return f"{client.name} committed: {_show_committed(answer)}"
        if action == "leaves" and (answer.error_code or not answer.members):
            return f"{client.name} leaves: {ErrorCode(answer.error_code).name}"
        return super()._show(client, action, answer)

    def _show_fetched(self, answer: Any) -> str:
        groups = answer.groups or [answer]
        if groups[0].error_code:
            return ErrorCode(groups[0].error_code).name
        found = [
            f"{t.name}-{p.partition_index}="
            + (ErrorCode(p.error_code).name if p.error_code else str(p.committed_offset))
            + (f"/{p.metadata}" if p.metadata else "")
            for group in groups
            for t in group.topics
            for p in t.partitions
        ]
        return " ".join(sorted(found)) or "nothing"

    def _own(self, group_id: str) -> str:
        return group_id.removeprefix(f"{self._fresh}-")

    def _show_listed(self, answer: Any) -> str:
        groups = [g for g in answer.groups if g.group_id.startswith(self._fresh)]
        shown = [
            f"{self._own(g.group_id)}/{g.group_type}/{g.group_state}/{g.protocol_type}"
            for g in groups
        ]
        return " ".join(sorted(shown)) or "nothing"

    def _show_described(self, answer: Any) -> str:
        shown: list[str] = []
        for g in answer.groups:
            code = f" {ErrorCode(g.error_code).name}" if g.error_code else ""
            members = [
                f"{self.name_of(m.member_id)}@{m.client_id}={m.member_assignment.decode() or '-'}"
                + ("" if m.member_metadata else "!")
                for m in g.members
            ]
            head = (
                f"{self._own(g.group_id)} {g.group_state}{code} {g.protocol_type}/{g.protocol_data}"
            )
            shown.append(" ".join([head, *sorted(members)]))
        return "; ".join(sorted(shown))

    def _show_deleted(self, answer: Any) -> str:
        shown = [f"{self._own(r.group_id)}={ErrorCode(r.error_code).name}" for r in answer.results]
        return " ".join(sorted(shown))


def _client_part(member_id: str) -> str:
    """Ids are a name and a random UUID of five parts."""
    return member_id.rsplit("-", 5)[0]


def _show_committed(answer: Any) -> str:
    results = [
        (t.name, p.partition_index, p.error_code) for t in answer.topics for p in t.partitions
    ]
    return " ".join(ErrorCode(code).name for _, _, code in sorted(results))


def _show_dropped(answer: Any) -> str:
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    shown = [
        f"{t.name}-{p.partition_index}={ErrorCode(p.error_code).name}"
        for t in answer.topics
        for p in t.partitions
    ]
    return " ".join(sorted(shown))


def _show_found(answer: Any) -> str:
    found = answer.coordinators[0] if answer.coordinators else answer
    code = ErrorCode(found.error_code).name
    return f"{code} {'a broker' if found.node_id >= 0 and found.port > 0 else 'nobody'}"


def talk(address: str, path: Path, kind: type[Conversation] = Conversation) -> tuple[str, str]:
    """The expected and the actual conversation, in the form of the file."""
    conversation = kind(address)
    try:
        return go_on(conversation, path)
    finally:
        conversation.wire.close()


def go_on(conversation: Conversation, path: Path) -> tuple[str, str]:
    """Like `talk`, with clients that have had a conversation before."""
    expected: list[str] = []
    heard: list[str] = []
    for actions, outcomes in blocks_of(path.read_text(encoding="utf-8")):
        conversation.lines = []
        for action in actions:
            conversation.run(action)
        names = [line.split()[0] for line in outcomes]
        conversation.hear([name for name in names if conversation.wire.waits(name)])
        expected += [*actions, DASHES, *outcomes, ""]
        heard += [*actions, DASHES, *conversation.lines, ""]
    return "\n".join(expected), "\n".join(heard)
