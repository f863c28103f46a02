"""Groups with members of one library, and of all libraries together."""

from typing import Any

import pytest
from support.running_node import fresh_name
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic
from third_party.conftest import LIBRARIES
from third_party.libraries import Committed, ConsumerOptions, Library, ProducerOptions, Sent
from third_party.members import Member, members, wait_until_shared

from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.types import TopicPartition

PARTITIONS = 6
EACH_ASSIGNOR = [
    pytest.param(library, assignor, id=f"{library.name}-{assignor}")
    for library in LIBRARIES
    for assignor in library.assignors
]


@pytest.fixture
def wide(address: str) -> str:
    name = fresh_name("wide")
    create_topic(address, name, partitions=PARTITIONS)
    return name


def fill(library: Library, address: str, topic: str, count: int, tag: str) -> set[bytes]:
    """Writes records to all partitions; returns their values."""
    sent = [
        Sent(value=f"{tag}-{number}".encode(), partition=number % PARTITIONS)
        for number in range(count)
    ]
    library.produce(address, topic, sent, ProducerOptions())
    return {one.value or b"" for one in sent}


def seen(group: list[Member]) -> list[bytes]:
    return [one.value or b"" for member in group for one in member.received]


def commit_what_came(member: Member) -> None:
    """Commits the records received from the partitions that the member has now."""
    ends = {
        one.partition: Committed(one.offset + 1)
        for one in member.received
        if one.partition in member.assignment
    }
    commit_offsets(member, ends)


@pytest.mark.parametrize(("library", "assignor"), EACH_ASSIGNOR)
def test_members_share_a_topic_and_share_it_again_when_one_comes_or_goes(
    address: str, wide: str, library: Library, assignor: str
) -> None:
    options = ConsumerOptions(group=fresh_name("group"), assignor=assignor)
    one = (library, address, [wide], options)
    with members(one) as first:
        wait_until_shared(first, {wide: PARTITIONS})
        values = fill(library, address, wide, 60, "alone")
        first[0].wait_for(lambda: values <= set(seen(first)), "records of one member")
        commit_what_came(first[0])
        with members(one) as second:
            both = [*first, *second]
            wait_until_shared(both, {wide: PARTITIONS})
            assert [len(each.assignment) for each in both] == [3, 3]
            more = fill(library, address, wide, 60, "both")
            for each in both:
                each.wait_for_some(more, 30)
            for each in both:
                commit_what_came(each)
        wait_until_shared(first, {wide: PARTITIONS})
        last = fill(library, address, wide, 60, "again")
        first[0].wait_for(lambda: last <= set(seen(first)), "records after the other left")
        # Committed records were not received twice.
        assert len(seen(both)) == len(values) + len(more) + len(last)


@pytest.mark.parametrize(("library", "assignor"), EACH_ASSIGNOR)
def test_a_group_describes_itself_while_it_lives(
    address: str, wide: str, library: Library, assignor: str
) -> None:
    group = fresh_name("group")
    options = ConsumerOptions(group=group, assignor=assignor)
    with members(*[(library, address, [wide], options)] * 2) as both:
        wait_until_shared(both, {wide: PARTITIONS})
        described = wait_until_stable(address, group)
        assert (described.protocol_type, described.protocol_data) == ("consumer", assignor)
        assert len(described.members) == 2
        assert all(each.member_assignment for each in described.members)
    described = describe(address, group)
    assert (described.group_state, described.members) == ("Empty", [])


def describe(address: str, group: str) -> Any:
    with WireClient(address) as client:
        (described,) = client.ask(DescribeGroupsRequest(groups=[group]), version=5).groups
    assert described.error_code == 0
    return described


def wait_until_stable(address: str, group: str) -> Any:
    """A member may request one more rebalance when it learns more about the topic."""
    described = describe(address, group)

    def is_stable() -> bool:
        nonlocal described
        described = describe(address, group)
        return bool(described.group_state == "Stable")

    wait_for(is_stable, "a stable group")
    return described


@pytest.mark.parametrize(
    "library",
    [each for each in LIBRARIES if "cooperative-sticky" in each.assignors],
    ids=lambda each: each.name,
)
def test_a_cooperative_member_gives_up_only_what_moves(
    address: str, wide: str, library: Library
) -> None:
    options = ConsumerOptions(group=fresh_name("group"), assignor="cooperative-sticky")
    one = (library, address, [wide], options)
    with members(one) as first:
        wait_until_shared(first, {wide: PARTITIONS})
        with members(one) as second:
            wait_until_shared([*first, *second], {wide: PARTITIONS})
            (given_up,) = [each for each in first[0].revoked if each]
            assert given_up == second[0].assignment
            kept = set(first[0].assignment)
        assert len(given_up) == PARTITIONS // 2
        wait_until_shared(first, {wide: PARTITIONS})
        assert [each for each in first[0].revoked if each] == [given_up]
        assert kept <= first[0].assignment


def test_a_static_member_that_comes_back_gets_its_partitions_without_a_rebalance(
    address: str, wide: str, library: Library
) -> None:
    group = fresh_name("group")

    def static(name: str) -> tuple[Library, str, list[str], ConsumerOptions]:
        options = ConsumerOptions(group=group, instance_id=name)
        return (library, address, [wide], options)

    with members(static("first")) as stays:
        with members(static("second")) as leaves:
            wait_until_shared([*stays, *leaves], {wide: PARTITIONS})
            wait_until_stable(address, group)
            before = set(leaves[0].assignment)
            kept = set(stays[0].assignment)
            revoked_before = len(stays[0].revoked)
        with members(static("second")) as back:
            wait_until_shared([*stays, *back], {wide: PARTITIONS})
            assert (back[0].assignment, stays[0].assignment) == (before, kept)
            assert len(stays[0].revoked) == revoked_before
            described = wait_until_stable(address, group)
            assert {each.group_instance_id for each in described.members} == {"first", "second"}


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_members_of_all_libraries_share_one_group(address: str, wide: str, assignor: str) -> None:
    options = ConsumerOptions(group=fresh_name("mixed"), assignor=assignor)
    with members(*[(each, address, [wide], options) for each in LIBRARIES]) as group:
        wait_until_shared(group, {wide: PARTITIONS})
        assert [len(each.assignment) for each in group] == [2, 2, 2]
        values = fill(LIBRARIES[0], address, wide, 60, "mixed")
        for each in group:
            each.wait_for_some(values, 20)
        assert sorted(seen(group)) == sorted(values)


def test_one_library_resumes_where_another_committed(address: str, topic: str) -> None:
    options = ConsumerOptions(group=fresh_name("relay"))
    partition = TopicPartition(topic, 0)
    sent = [Sent(value=b"%d" % number) for number in range(9)]
    LIBRARIES[0].produce(address, topic, sent, ProducerOptions())
    for turn, library in enumerate(LIBRARIES):
        with members((library, address, [topic], options)) as (member,):
            rest = {one.value or b"" for one in sent[3 * turn :]}
            member.wait_for_some(rest, len(rest))
            assert member.received[0].offset == 3 * turn
            next_turn = {partition: Committed(3 * turn + 3)}
            commit_offsets(member, next_turn)


def commit_offsets(member: Member, offsets: dict[TopicPartition, Committed]) -> None:
    member.ask(lambda consumer: consumer.commit(offsets))


def test_a_group_may_follow_several_topics(address: str, library: Library) -> None:
    topics = {fresh_name("several"): 2, fresh_name("several"): 3}
    for name, count in topics.items():
        create_topic(address, name, partitions=count)
    options = ConsumerOptions(group=fresh_name("group"), assignor="roundrobin")
    with members(*[(library, address, list(topics), options)] * 2) as both:
        wait_until_shared(both, topics)
        assert sorted(len(each.assignment) for each in both) == [2, 3]
