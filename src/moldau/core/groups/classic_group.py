"""A classic group: its members, their common protocols, and its state. Bookkeeping only;
rebalancing.py decides when to rebalance.

Between two assignments the members are soft state: the log has the last assignment.
"""

from collections import Counter
from collections.abc import Collection

from moldau.core.groups.member import NO_ASSIGNMENT, JoinTicket, Member, Protocols
from moldau.core.groups.states import ALLOWED, GroupState
from moldau.core.groups.subscriptions import CONSUMER_PROTOCOL, subscribed_topics
from moldau.protocol.error_codes import ErrorCode


def select_protocol(members: Collection[Member]) -> str:
    """The protocol that most members prefer, among those that all members support."""
    candidates = set.intersection(*({name for name, _ in m.protocols} for m in members))
    votes = Counter(member.vote(candidates) for member in members)
    return votes.most_common(1)[0][0]


class ClassicGroup:
    def __init__(self, group_id: str, state_since_ms: int | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_since_ms = state_since_ms
        """None if the log does not contain it."""
        self.generation = 0
        self.protocol_type: str | None = None
        """None if no member ever joined: simple consumers only store their offsets here."""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending_members: set[str] = set()
        """Member ids that were handed out and have not joined yet."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self._subscriptions: dict[str, bytes] | None = None
        """Of the consumers of this generation, by member id; None before the first one."""
        self.has_new_member = False
        """A member joined since the initial delay started, so the delay is extended."""
        self.initial_remaining_ms = 0
        self._members_weight = 0
        self._outdated_bytes = 0
        """Of subscriptions of this generation whose members have left or joined with others."""
        self._joined_count = 0
        self._supporters: Counter[str] = Counter()

    def __repr__(self) -> str:
        return (
            f"ClassicGroup({self.group_id!r}, {self.state.value}, generation={self.generation}, "
            f"members={list(self.members)})"
        )

    # Reading

    @property
    def joined_count(self) -> int:
        return self._joined_count

    @property
    def all_joined(self) -> bool:
        return self._joined_count == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def is_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def is_initial_rebalance(self) -> bool:
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    @property
    def weight(self) -> int:
        """The approximate memory of all members."""
        return self._members_weight + self._outdated_bytes

    @property
    def subscription_bytes(self) -> int:
        """The subscriptions that `subscribed_topics` reads."""
        return sum(map(len, (self._subscriptions or {}).values()))

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the consumers of this generation are subscribed to; None if unknown. The
        set is not kept: it can take twenty times the memory of what the members have sent.
        """
        if self._subscriptions is None:
            return None
        return subscribed_topics(self._subscriptions.values())

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols could join."""
        if self.state is GroupState.EMPTY:
            return protocol_type != "" and protocols != ()
        return self.protocol_type == protocol_type and any(
            self._supporters[name] == len(self.members) for name, _ in protocols
        )

    def member_error(
        self, member_id: str, instance_id: str | None, principal: str | None
    ) -> ErrorCode | None:
        """The error of a request in the name of this member, None if it is valid. Without a
        `principal`, the caller checks permissions itself.
        """
        if instance_id is not None:
            known_id = self.static_ids.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        # Every client that may describe the group can read member ids: the principal must match.
        if principal is not None and member.principal not in {None, principal}:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type, (self, member)
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids, (self, member)
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._add_protocols(member)
        self._joined_count += member.join_ticket is not None
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Removes a member or a pending member id. None unless it was a member."""
        self.pending_members.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._subtract_protocols(member)
        self._joined_count -= member.join_ticket is not None
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static(self, old_id: str, new: Member) -> None:
        """A static member returned with a new id. It keeps its position and its leadership."""
        old = self.members[old_id]
        assert old.instance_id == new.instance_id is not None, (old, new)
        assert old.join_ticket is None, old
        assert old.sync_ticket is None, old
        self._subtract_protocols(old)
        self._add_protocols(new)
        self._joined_count += new.join_ticket is not None
        self.members = {m.member_id: m for m in self.members_with(old_id, new)}
        self.static_ids[new.instance_id] = new.member_id
        self.pending_syncs.discard(old_id)
        if self.leader_id == old_id:
            self.leader_id = new.member_id

    def members_with(self, old_id: str, new: Member) -> list[Member]:
        """The members, with `new` in place of the member `old_id`."""
        return [new if m.member_id == old_id else m for m in self.members.values()]

    def renew(self, member: Member, protocols: Protocols, ticket: JoinTicket) -> JoinTicket | None:
        """The member joins again, maybe with other protocols. Returns the replaced ticket."""
        self._subtract_protocols(member)
        member.protocols = protocols
        self._add_protocols(member)
        return self.park_join(member, ticket)

    def _add_protocols(self, member: Member) -> None:
        self._members_weight += member.weight
        self._supporters.update(name for name, _ in member.protocols)

    def _subtract_protocols(self, member: Member) -> None:
        self._members_weight -= member.weight
        for name, _ in member.protocols:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                # A member may send other names each time it joins.
                del self._supporters[name]
        kept = (self._subscriptions or {}).get(member.member_id)
        if kept is not None and any(metadata is kept for _, metadata in member.protocols):
            self._outdated_bytes += len(kept)

    def park_join(self, member: Member, ticket: JoinTicket | None) -> JoinTicket | None:
        """Returns the ticket that waited before, if any."""
        self._joined_count += (ticket is not None) - (member.join_ticket is not None)
        waited, member.join_ticket = member.join_ticket, ticket
        return waited

    # Generations

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has joined, else elects a joined member. False without one."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_ticket is not None:
            return True
        joined = (m for m in self.members.values() if m.join_ticket is not None)
        elected = next(joined, None)
        if elected is not None:
            self.leader_id = elected.member_id
        return elected is not None

    def begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = select_protocol(self.members.values()) if self.members else None
        self._keep_subscriptions()
        next_state = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.move_to(next_state, now_ms)

    def _keep_subscriptions(self) -> None:
        self._outdated_bytes = 0
        if self.is_consumers:
            name = self.protocol_name
            self._subscriptions = {m.member_id: m.metadata_for(name) for m in self.members.values()}
        else:
            self._subscriptions = None

    def mark_loaded(self) -> None:
        """The log only has empty groups and stable ones, which have members."""
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self._keep_subscriptions()

    def move_to(self, state: GroupState, now_ms: int) -> None:
        assert state in ALLOWED[self.state], (self, state)
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    def forget_assignments(self) -> None:
        for member in self.members.values():
            member.assignment = NO_ASSIGNMENT
