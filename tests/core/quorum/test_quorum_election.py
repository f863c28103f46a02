"""A voter's election state in the format of Kafka's file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.quorum.election import (
    Election,
    QuorumStateError,
    decode_election,
    encode_election,
)
from moldau.core.quorum.voters import VoterKey
from moldau.types import BrokerId, LeaderEpoch, Uuid, parse_uuid

DIRECTORY = parse_uuid("2_nZJKebT_GUfGcRIDwReQ")

APACHES_V1 = (
    b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
APACHES_V0 = (
    b'{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)


def test_the_file_is_apaches_to_the_byte() -> None:
    led = Election(epoch=LeaderEpoch(2), leader_id=BrokerId(1))
    assert encode_election(led, kraft_version=1, voter_ids=[1]) == APACHES_V1
    voted = Election(epoch=LeaderEpoch(7), voted_for=VoterKey(BrokerId(1)))
    assert encode_election(voted, kraft_version=0, voter_ids=[1]) == APACHES_V0
    assert decode_election(APACHES_V1) == led
    assert decode_election(APACHES_V0) == voted


@given(
    st.builds(
        Election,
        epoch=st.integers(0, 2**31 - 1),
        leader_id=st.integers(-1, 100),
        voted_for=st.none()
        | st.builds(VoterKey, st.integers(0, 9), st.binary(min_size=16, max_size=16).map(Uuid)),
    )
)
def test_elections_survive_a_round_trip(election: Election) -> None:
    assert decode_election(encode_election(election, kraft_version=1, voter_ids=[])) == election


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        APACHES_V1.replace(b"1}", b"2}"),
        APACHES_V1.replace(b'"leaderEpoch":2', b'"leaderEpoch":"2"'),
        APACHES_V1.replace(b'"leaderEpoch":2', b'"leaderEpoch":-2'),
        APACHES_V1.replace(b'"leaderEpoch":2', b'"leaderEpoch":9999999999'),
        APACHES_V1.replace(b"AAAA", b"??"),
        APACHES_V1[:40],
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_election(content)
