"""A voter's election state, stored in Kafka's `quorum-state` file: the epoch and its leader, or
this voter's vote. It survives restarts so that no voter votes twice in an epoch.
"""

import json
from collections.abc import Iterable
from typing import Any

from moldau.core.quorum.voters import RECONFIGURABLE_FROM, VoterKey
from moldau.frozen import frozen
from moldau.protocol.errors import MoldauError
from moldau.types import (
    INT32_MAX,
    NO_LEADER,
    ZERO_UUID,
    BrokerId,
    LeaderEpoch,
    parse_uuid,
    uuid_text,
)


class QuorumStateError(MoldauError):
    """The file's content is invalid."""


@frozen(kw_only=True)
class Election:
    epoch: LeaderEpoch
    leader_id: BrokerId = NO_LEADER
    voted_for: VoterKey | None = None


def encode_election(election: Election, *, kraft_version: int, voter_ids: Iterable[int]) -> bytes:
    """JSON in Kafka's order of fields, without spaces."""
    voted_id = NO_LEADER if election.voted_for is None else election.voted_for.node_id
    fields: dict[str, Any]
    if kraft_version < RECONFIGURABLE_FROM:
        fields = {
            "clusterId": "",
            "leaderId": election.leader_id,
            "leaderEpoch": election.epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        directory_id = ZERO_UUID if election.voted_for is None else election.voted_for.directory_id
        fields = {
            "leaderId": election.leader_id,
            "leaderEpoch": election.epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_text(directory_id),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def decode_election(content: bytes) -> Election:
    """Raises QuorumStateError for invalid content: guessing could lead to a second vote."""
    try:
        fields = json.loads(content)
        version = fields["data_version"]
        if version not in {0, 1}:
            raise QuorumStateError(f"data_version {version} is not supported: 0 and 1 are")
        voted_id = _number(fields, "votedId")
        directory_id = ZERO_UUID
        if version == 1:
            directory_id = parse_uuid(fields["votedDirectoryId"])
        return Election(
            epoch=LeaderEpoch(_number(fields, "leaderEpoch")),
            leader_id=BrokerId(_number(fields, "leaderId")),
            voted_for=None if voted_id == NO_LEADER else VoterKey(BrokerId(voted_id), directory_id),
        )
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise QuorumStateError(f"it cannot be read: {error}") from error


def _number(fields: dict[str, Any], name: str) -> int:
    number = fields[name]
    if type(number) is not int or not NO_LEADER <= number <= INT32_MAX:
        raise ValueError(f"{name} is {number!r}")
    return number
