"""The control records that a leader writes about the quorum."""

from collections.abc import Iterable
from typing import TypeAlias

from moldau.core.quorum.state import QuorumState
from moldau.core.quorum.voters import VoterSet
from moldau.protocol.log_records import KRaftVersionRecord, LeaderChangeMessage
from moldau.protocol.log_records.leader_change_message import Voter
from moldau.protocol.records.control_records import ControlType
from moldau.protocol.wire.codec import encode
from moldau.types import NO_OFFSET

LEADER_CHANGE_VERSION = 0
KRAFT_VERSION_RECORD_VERSION = 0

ControlValues: TypeAlias = tuple[tuple[ControlType, bytes], ...]


def first_values(state: QuorumState, granting: Iterable[int]) -> ControlValues:
    """The leader and its votes, and the voters unless the log already has this set of them."""
    change = LeaderChangeMessage(
        version=LEADER_CHANGE_VERSION,
        leader_id=state.local.key.node_id,
        voters=[Voter(voter_id=voter_id) for voter_id in state.voters.by_id],
        granting_voters=[Voter(voter_id=voter_id) for voter_id in granting],
    )
    values: ControlValues = ((ControlType.LEADER_CHANGE, encode(change, LEADER_CHANGE_VERSION)),)
    is_recorded = state.history.voters_offset != NO_OFFSET
    if state.is_reconfigurable and not (is_recorded and not state.voters.needs_update(state.local)):
        values += version_values(state.history.kraft_version)
        values += voters_values(state.voters.updated(state.local))
    return values


def version_values(level: int) -> ControlValues:
    return ((ControlType.KRAFT_VERSION, encode_kraft_version(level)),)


def voters_values(voters: VoterSet) -> ControlValues:
    return ((ControlType.KRAFT_VOTERS, voters.encode()),)


def encode_kraft_version(level: int) -> bytes:
    record = KRaftVersionRecord(version=KRAFT_VERSION_RECORD_VERSION, kraft_version=level)
    return encode(record, KRAFT_VERSION_RECORD_VERSION)
