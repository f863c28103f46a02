"""The voters of the quorum. A voter is a node with a directory: after the loss of its disk it is a
different voter (KIP-853). With kraft.version 1 voters come from control records, else from
settings.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from moldau.frozen import frozen
from moldau.protocol.log_records import VotersRecord
from moldau.protocol.log_records.voters_record import Endpoint, KRaftVersionFeature
from moldau.protocol.log_records.voters_record import Voter as VoterFields
from moldau.protocol.wire.codec import decode, encode
from moldau.types import ZERO_UUID, BrokerId, Buffer, Uuid, uuid_text

VOTERS_RECORD_VERSION = 0
KRAFT_VERSION_MAX = 1
# The first level at which voters have directories and may change.
RECONFIGURABLE_FROM = 1


class VoterKey(NamedTuple):
    node_id: BrokerId
    directory_id: Uuid = ZERO_UUID
    """Zero if unknown: it is stored since kraft.version 1."""

    @property
    def has_directory(self) -> bool:
        return self.directory_id != ZERO_UUID

    def is_same(self, other: "VoterKey") -> bool:
        """Compares directory ids only if this key has one."""
        return self.node_id == other.node_id and self.directory_id in {
            ZERO_UUID,
            other.directory_id,
        }

    def __str__(self) -> str:
        if not self.has_directory:
            return str(self.node_id)
        return f"{self.node_id} (directory {uuid_text(self.directory_id)})"


class VoterEndpoint(NamedTuple):
    listener: str
    host: str
    port: int


@frozen(kw_only=True)
class Voter:
    key: VoterKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, KRAFT_VERSION_MAX)
    """The lowest and the highest level that the voter supports."""

    def is_same(self, key: VoterKey) -> bool:
        return self.key.is_same(key)

    def supports(self, kraft_version: int) -> bool:
        lowest, highest = self.kraft_versions
        return lowest <= kraft_version <= highest


@frozen
class VoterSet:
    by_id: Mapping[int, Voter]

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> "VoterSet":
        return cls({voter.key.node_id: voter for voter in voters})

    @classmethod
    def decode(cls, content: Buffer) -> "VoterSet":
        """From the value of a KRaftVoters control record."""
        record = decode(VotersRecord, VOTERS_RECORD_VERSION, content)
        return cls.of(_voter_of(fields) for fields in record.voters)

    def encode(self) -> bytes:
        voters = [_fields_of(voter) for voter in self.by_id.values()]
        record = VotersRecord(version=VOTERS_RECORD_VERSION, voters=voters)
        return encode(record, VOTERS_RECORD_VERSION)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, VoterKey):
            return False
        voter = self.by_id.get(key.node_id)
        return voter is not None and voter.is_same(key)

    def __str__(self) -> str:
        return ", ".join(str(voter.key) for voter in self.by_id.values()) or "none"

    def is_only(self, key: VoterKey) -> bool:
        return len(self.by_id) == 1 and key in self

    def needs_update(self, voter: Voter) -> bool:
        """Whether the voter is in the set with other addresses or versions. The order of addresses
        means nothing: Kafka's leaders write them in any order.
        """
        known = self.by_id.get(voter.key.node_id)
        if known is None or not known.is_same(voter.key):
            return False
        return replace(known, endpoints=voter.endpoints) != voter or (
            set(known.endpoints) != set(voter.endpoints)
        )

    def updated(self, voter: Voter) -> "VoterSet":
        """With this voter, in place of the one with its id."""
        return replace(self, by_id={**self.by_id, voter.key.node_id: voter})

    def without(self, key: VoterKey) -> "VoterSet":
        remaining = {
            node_id: voter for node_id, voter in self.by_id.items() if node_id != key.node_id
        }
        return replace(self, by_id=remaining)


NO_VOTERS = VoterSet({})


def _voter_of(fields: VoterFields) -> Voter:
    feature = fields.kraft_version_feature
    return Voter(
        key=VoterKey(BrokerId(fields.voter_id), fields.voter_directory_id),
        endpoints=tuple(
            VoterEndpoint(each.name, each.host, each.port) for each in fields.endpoints
        ),
        kraft_versions=(feature.min_supported_version, feature.max_supported_version),
    )


def _fields_of(voter: Voter) -> VoterFields:
    low, high = voter.kraft_versions
    return VoterFields(
        voter_id=voter.key.node_id,
        voter_directory_id=voter.key.directory_id,
        endpoints=[
            Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints
        ],
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=low, max_supported_version=high
        ),
    )
