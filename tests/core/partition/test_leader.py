"""The high watermark of a leader, and refused appends."""

from moldau.core.metadata.image import UNASSIGNED_DIRECTORY, PartitionImage
from moldau.core.partition.leader import ACKS_ALL, Commit, PartitionLeader, ProposeIsr
from moldau.protocol.error_codes import ErrorCode
from moldau.types import BrokerId, LeaderEpoch, Offset


def image(
    *, replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3), epoch: int = 0
) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(map(BrokerId, replicas)),
        directories=(UNASSIGNED_DIRECTORY,) * len(replicas),
        isr=tuple(map(BrokerId, isr)),
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(5),
        partition_epoch=epoch,
    )


def leader(
    partition: PartitionImage, *, min_isr: int = 1, log_end: int = 0, high_watermark: int = 0
) -> PartitionLeader:
    return PartitionLeader(
        BrokerId(1),
        partition,
        min_insync_replicas=min_isr,
        log_end=Offset(log_end),
        high_watermark=Offset(high_watermark),
    )


def test_a_sole_replica_commits_what_it_has() -> None:
    alone = leader(image(replicas=(1,), isr=(1,)))
    assert alone.log_reached(Offset(4)) == (Commit(Offset(4)),)
    assert alone.log_reached(Offset(4)) == ()


def test_records_on_all_in_sync_replicas_are_committed() -> None:
    first = leader(image())
    assert first.log_reached(Offset(10)) == ()
    assert first.follower_fetched(BrokerId(2), Offset(7)) == ()
    assert first.follower_fetched(BrokerId(3), Offset(5)) == (Commit(Offset(5)),)
    assert first.follower_fetched(BrokerId(3), Offset(9)) == (Commit(Offset(7)),)


def test_the_high_watermark_never_falls() -> None:
    first = leader(image(isr=(1,)))
    first.log_reached(Offset(10))
    assert first.changed(image(isr=(1, 2), epoch=1)) == ()
    assert first.high_watermark == 10


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    first = leader(image(isr=(1,)), min_isr=2)
    refused = first.plan_append(ACKS_ALL)
    assert refused is not None
    assert refused.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert first.plan_append(1) is None
    assert first.log_reached(Offset(3)) == ()
    first.follower_fetched(BrokerId(2), Offset(3))
    assert first.changed(image(isr=(1, 2), epoch=1)) == (Commit(Offset(3)),)


def test_too_few_in_sync_replicas_after_the_append_are_reported() -> None:
    first = leader(image(), min_isr=2)
    assert first.commit_refusal() is None
    first.changed(image(isr=(1,), epoch=1))
    refusal = first.commit_refusal()
    assert refusal is not None
    assert refusal.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_the_minimum_isr_is_at_most_the_number_of_replicas() -> None:
    alone = leader(image(replicas=(1,), isr=(1,)), min_isr=2)
    assert alone.plan_append(ACKS_ALL) is None
    assert alone.log_reached(Offset(1)) == (Commit(Offset(1)),)


def test_a_follower_that_caught_up_is_proposed_once_and_counts_at_once() -> None:
    first = leader(image(isr=(1, 2), epoch=3), log_end=10, high_watermark=10)
    first.log_reached(Offset(10))
    first.follower_fetched(BrokerId(2), Offset(10))
    assert first.follower_fetched(BrokerId(3), Offset(10)) == (ProposeIsr((1, 2, 3), 3),)
    assert first.follower_fetched(BrokerId(3), Offset(10)) == ()
    # KIP-497: the controller may have added it already, so it must have all committed records.
    first.log_reached(Offset(12))
    assert first.follower_fetched(BrokerId(2), Offset(12)) == ()
    assert first.follower_fetched(BrokerId(3), Offset(12)) == (Commit(Offset(12)),)


def test_a_failed_proposal_is_repeated() -> None:
    first = leader(image(isr=(1,)))
    assert ProposeIsr((1, 2), 0) in first.follower_fetched(BrokerId(2), Offset(0))
    first.proposal_failed()
    assert ProposeIsr((1, 2), 0) in first.follower_fetched(BrokerId(2), Offset(0))


def test_a_follower_before_the_start_of_the_epoch_is_not_in_sync() -> None:
    first = leader(image(isr=(1,)), log_end=8, high_watermark=5)
    assert first.is_lagging
    assert first.follower_fetched(BrokerId(2), Offset(6)) == ()
    assert first.follower_fetched(BrokerId(2), Offset(8)) == (ProposeIsr((1, 2), 0),)


def test_fetches_of_brokers_without_a_replica_are_refused() -> None:
    first = leader(image())
    for broker_id in (1, 4):
        refused = first.plan_fetch(BrokerId(broker_id))
        assert refused is not None
        assert refused.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert first.plan_fetch(BrokerId(2)) is None


def test_a_lower_minimum_lets_the_high_watermark_rise() -> None:
    first = leader(image(isr=(1,)), min_isr=2)
    first.log_reached(Offset(3))
    assert first.min_insync_replicas_changed(1) == (Commit(Offset(3)),)
