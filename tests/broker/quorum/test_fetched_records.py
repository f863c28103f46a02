"""Records of a leader are checked before they are appended."""

from dataclasses import replace

import pytest
from broker.quorum.quorum_cluster import running_quorum

from moldau.broker.quorum.fetched_records import check_fetched
from moldau.core.metadata.snapshot_file import metadata_batch
from moldau.core.quorum.control_values import version_values, voters_values
from moldau.core.quorum.history import KRaftVersion, QuorumChange
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.rpc import FetchResponse, Request, Response
from moldau.core.quorum.voters import Voter, VoterKey, VoterSet
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.control_records import ControlType, OffsetAndEpoch, control_batch
from moldau.types import BrokerId, LeaderEpoch, Offset

END = LogPosition(LeaderEpoch(3), Offset(10))
EPOCH = LeaderEpoch(5)


def batch(offset: int, epoch: int, count: int = 2) -> bytes:
    return metadata_batch(
        [b"record"] * count, OffsetAndEpoch(Offset(offset), LeaderEpoch(epoch)), 1_000
    )


def checked(records: bytes) -> bytes:
    return check_fetched(records, END, EPOCH).content


def test_batches_that_continue_the_log_are_taken() -> None:
    records = batch(10, 3) + batch(12, 4) + batch(14, 5)
    assert checked(records) == records


def test_a_partial_last_batch_is_left_out() -> None:
    assert checked(batch(10, 5) + batch(12, 5)[:-1]) == batch(10, 5)
    with pytest.raises(KafkaError, match="no whole batch"):
        checked(batch(10, 5)[:-1])


def test_batches_of_a_later_epoch_are_left_out() -> None:
    """The sender has lost its leadership in the meantime (KAFKA-18723)."""
    assert checked(batch(10, 5) + batch(12, 6)) == batch(10, 5)
    with pytest.raises(KafkaError, match="no whole batch of an epoch up to 5"):
        checked(batch(10, 6))


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (batch(11, 5), "expected was 10"),
        (batch(8, 5), "expected was 10"),
        (batch(10, 5) + batch(13, 5), "expected was 12"),
        (batch(10, 5) + batch(10, 5), "offsets do not increase"),
        (batch(10, 2), "has epoch 2, the one before it 3"),
        (batch(10, 5) + batch(12, 4), "has epoch 4, the one before it 5"),
        (b"nothing like a batch" * 10, "damaged"),
    ],
)
def test_what_does_not_continue_the_log_is_refused(records: bytes, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason):
        checked(records)


def test_every_damaged_byte_under_the_checksum_is_found() -> None:
    records = batch(10, 5)
    for position in range(17, len(records)):
        damaged = bytearray(records)
        damaged[position] ^= 0x01
        with pytest.raises(KafkaError):
            checked(bytes(damaged))


def test_control_batches_say_what_changes() -> None:
    voters = VoterSet.of([Voter(key=VoterKey(BrokerId(1)))])
    values = (*version_values(1), *voters_values(voters))
    records = batch(10, 5) + control_batch(values, OffsetAndEpoch(Offset(12), EPOCH), 1)
    assert check_fetched(records, END, EPOCH).changes == (
        QuorumChange(Offset(12), KRaftVersion(1)),
        QuorumChange(Offset(13), voters),
    )
    broken = control_batch(
        [(ControlType.KRAFT_VOTERS, b"\x00")], OffsetAndEpoch(Offset(10), EPOCH), 1
    )
    with pytest.raises(KafkaError, match="cannot be decoded"):
        checked(broken)


async def test_damaged_records_of_a_leader_are_refused_and_fetched_again() -> None:
    async with running_quorum() as cluster:
        leader = await cluster.wait_for_leader()
        await leader.commit("before")
        await cluster.wait_until_equal()
        damaged: list[Response] = []

        def damage(_request: Request, response: Response) -> Response:
            if isinstance(response, FetchResponse) and response.records and len(damaged) < 3:
                damaged.append(response)
                content = bytearray(response.records)
                content[-1] ^= 0xFF
                return replace(response, records=bytes(content))
            return response

        cluster.faults.change = damage
        await leader.commit("after")
        await cluster.wait_until_equal()
        assert len(damaged) == 3
        assert all("after" in each.values for each in cluster.members.values())
        assert cluster.files(1) == cluster.files(2) == cluster.files(3)
        assert [each.failures for each in cluster.members.values()] == [[], [], []]
