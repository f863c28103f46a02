"""The quorum's requests, as raw messages of every version, to the controller of a live Apache Kafka
and to ours: same codes, same shapes, same texts.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from interop.apache import ApacheOracle
from interop.node_pair import Asker, Pairs, plain, running_pairs
from interop.quorum_talk import (
    FENCED,
    FETCH_VERSIONS,
    INVALID,
    LISTENER,
    NONE,
    OTHER,
    SENDER,
    SETTINGS,
    UNKNOWN_EPOCH,
    Quorum,
    Request,
    add_of,
    begin_of,
    codes,
    comparable,
    described,
    end_of,
    epoch_of,
    fetch_of,
    key,
    position,
    quorum_of,
    remove_of,
    same,
    sent,
    update_of,
    vote_of,
)
from support.waiting import wait_for

from moldau.core.quorum import rpc
from moldau.core.quorum.messages.translation import read_response, request_message
from moldau.core.quorum.voters import VoterEndpoint, VoterKey
from moldau.protocol import messages as m
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages import begin_quorum_epoch, end_quorum_epoch, fetch, vote
from moldau.protocol.wire.schema import Message
from moldau.types import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    ZERO_UUID,
    BrokerId,
    LeaderEpoch,
    uuid_text,
)

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def pairs(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    with running_pairs(apache, tmp_path_factory.mktemp("pair"), SETTINGS) as pairs:
        yield pairs


@pytest.fixture(scope="module")
def static(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    """With kraft.version 0."""
    folder = tmp_path_factory.mktemp("static")
    with running_pairs(apache, folder, static_voters=True) as pairs:
        yield pairs


ANSWERED: dict[str, tuple[Request, ErrorCode]] = {
    "vote": (vote_of(), NONE),
    "vote, old epoch": (vote_of(epoch=LeaderEpoch(0)), INVALID),
    "vote, no candidate": (vote_of(candidate=key(-1)), INVALID),
    "vote, negative offset": (vote_of(last=position(0, -1)), INVALID),
    "vote, negative epoch": (vote_of(last=position(-1, 0)), INVALID),
    "vote, impossible epoch": (vote_of(last=position(99, 0)), INVALID),
    "vote, no receiver": (vote_of(voter=None), NONE),
    "begin": (begin_of(), NONE),
    "begin, old epoch": (begin_of(epoch=LeaderEpoch(0)), FENCED),
    "begin, no leader": (begin_of(leader_id=BrokerId(-1)), INVALID),
    "end": (end_of(), NONE),
    "end, old epoch": (end_of(epoch=LeaderEpoch(0)), FENCED),
    "end, no leader": (end_of(leader_id=BrokerId(-1)), INVALID),
    "end, with successors": (end_of(successors=(key(2), key(3))), NONE),
    "fetch, old epoch": (fetch_of(epoch=LeaderEpoch(0)), FENCED),
    "fetch, later epoch": (fetch_of(more=1), UNKNOWN_EPOCH),
    "fetch, negative wait": (fetch_of(max_wait_ms=-1), INVALID),
    "fetch, negative offset": (fetch_of(position=position(0, -1)), INVALID),
    "fetch, negative epoch": (fetch_of(position=position(-1, 0)), INVALID),
    "fetch, impossible epoch": (fetch_of(position=position(99, 0)), INVALID),
    "fetch, no bytes": (
        lambda quorum: fetch_of(
            max_bytes=-1, high_watermark=2**62, position=position(quorum.epoch, quorum.end_offset)
        )(quorum),
        NONE,
    ),
    "fetch, beyond the end": (fetch_of(position=position(0, 2**40)), NONE),
    "update, old epoch": (update_of(epoch=LeaderEpoch(0)), FENCED),
    "update, later epoch": (update_of(more=1), UNKNOWN_EPOCH),
    "update, no voter": (update_of(voter=key(-1)), INVALID),
    "update, no directory": (update_of(voter=key(2, ZERO_UUID)), INVALID),
    "update, no address": (update_of(endpoints=()), INVALID),
    "update, versions": (update_of(kraft_versions=(1, 0)), INVALID),
    "update, unsupported": (update_of(kraft_versions=(2, 3)), INVALID),
    "update, not a voter": (update_of(), ErrorCode.VOTER_NOT_FOUND),
    "add, no voter": (add_of(voter=key(-1)), INVALID),
    "add, no directory": (add_of(voter=key(3, ZERO_UUID)), INVALID),
    "add, no address": (
        add_of(endpoints=(VoterEndpoint("SSL", "localhost", 9094),)),
        INVALID,
    ),
    "remove, no voter": (remove_of(voter=key(-1)), INVALID),
    "remove, no directory": (remove_of(voter=key(3, ZERO_UUID)), INVALID),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_requests_are_answered_alike(pairs: Pairs, name: str) -> None:
    request, expected = ANSWERED[name]
    versions = FETCH_VERSIONS if name.startswith("fetch") else ()
    answer = same(pairs.controllers, sent(request), *versions)
    assert {code for code in codes(answer) if code} == {expected} - {NONE}


def test_an_old_epoch_is_fenced_before_a_vote(pairs: Pairs) -> None:
    """The candidate's log must be older still, or its request is impossible."""
    pair = pairs.controllers
    for side in pair:
        assert quorum_of(side).epoch == 1, "one election each"
    # Epoch 0 is below any record's, so only a pre-vote can be for it.
    request = vote_of(epoch=LeaderEpoch(0), is_pre_vote=True)
    assert max(codes(same(pair, sent(request), 2))) == FENCED


def test_pre_votes_are_answered_alike(pairs: Pairs) -> None:
    """The newest log and the highest epoch do not help against a leader."""

    def ahead(quorum: Quorum) -> rpc.Request:
        last = position(quorum.epoch, 2**40)
        return rpc.VoteRequest(
            epoch=epoch_of(quorum), candidate=key(2), last=last, is_pre_vote=True
        )

    answer = same(pairs.controllers, sent(ahead), 2)
    assert max(codes(answer)) == NONE
    assert not answer.topics[0].partitions[0].vote_granted


@pytest.mark.parametrize("voter", [key(2), key(1)], ids=["another node", "another directory"])
@pytest.mark.parametrize("make", [vote_of, begin_of])
def test_requests_for_another_voter_are_refused_alike(
    pairs: Pairs, make: Callable[..., Request], voter: VoterKey
) -> None:
    answer = same(pairs.controllers, sent(make(voter=voter)), 1)
    assert max(codes(answer)) == ErrorCode.INVALID_VOTER_KEY


def test_a_voter_can_be_added_only_once(pairs: Pairs) -> None:
    """The texts contain the ids of directories, which differ."""
    for request in (add_of(voter=key(1)), remove_of()):
        answers = []
        for side in pairs.controllers:
            quorum = quorum_of(side)
            answer = side.ask(request_message(request(quorum), 0, SENDER), 0)
            own = uuid_text(quorum.directory_id)
            answers.append((answer.error_code, answer.error_message.replace(own, "own")))
        assert answers[1] == answers[0]
        assert answers[0][0] in {ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND}
        assert "own" in answers[0][1]


def test_the_last_voter_stays(pairs: Pairs) -> None:
    for side in pairs.controllers:
        quorum = quorum_of(side)
        request = rpc.RemoveVoterRequest(voter=key(1, quorum.directory_id))
        answer = side.ask(request_message(request, 0, SENDER), 0)
        assert answer.error_code == ErrorCode.VOTER_NOT_FOUND, answer


def test_a_new_voter_must_be_reached(pairs: Pairs) -> None:
    """Nothing listens at its address."""
    answer = same(pairs.controllers, sent(add_of()))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("request_", [add_of(), remove_of()], ids=["add", "remove"])
def test_fixed_voters_cannot_change(static: Pairs, request_: Request) -> None:
    answer = same(static.controllers, sent(request_))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("request_", [add_of(voter=key(-1)), remove_of()], ids=["add", "remove"])
def test_brokers_forward_changes_of_the_voters(static: Pairs, request_: Request) -> None:
    request = request_(Quorum(0, OTHER))
    answer = static.brokers.same(request_message(request, 0, SENDER), 0)
    assert answer.error_code != NONE


# Shapes

TOPIC = METADATA_PARTITION.topic
WRONG_SHAPES: list[list[tuple[str, list[int]]]] = [
    [],
    [(TOPIC, [])],
    [(TOPIC, [0, 0])],
    [(TOPIC, [0]), (TOPIC, [0])],
    [("other", [0])],
    [(TOPIC, [1])],
]
PARTS: dict[type[Message], tuple[Any, Any]] = {
    m.VoteRequest: (vote.VoteRequestTopicData, vote.VoteRequestPartitionData),
    m.BeginQuorumEpochRequest: (
        begin_quorum_epoch.BeginQuorumEpochRequestTopicData,
        begin_quorum_epoch.BeginQuorumEpochRequestPartitionData,
    ),
    m.EndQuorumEpochRequest: (
        end_quorum_epoch.EndQuorumEpochRequestTopicData,
        end_quorum_epoch.EndQuorumEpochRequestPartitionData,
    ),
}


@pytest.mark.parametrize("shape", WRONG_SHAPES, ids=repr)
@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_other_partitions_are_refused_alike(
    pairs: Pairs, kind: Any, shape: list[tuple[str, list[int]]]
) -> None:
    topic_class, partition_class = PARTS[kind]
    topics = [
        topic_class(
            topic_name=name,
            partitions=[partition_class(partition_index=number) for number in numbers],
        )
        for name, numbers in shape
    ]
    answer = same(pairs.controllers, lambda *_: kind(topics=topics))
    assert answer.error_code == INVALID
    answer = same(pairs.controllers, lambda *_: kind(cluster_id="another", topics=topics))
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("shape", WRONG_SHAPES, ids=repr)
def test_other_fetches_are_refused_alike(pairs: Pairs, shape: list[tuple[str, list[int]]]) -> None:
    topics = [
        fetch.FetchTopic(
            topic=name,
            topic_id=METADATA_TOPIC_ID if name == TOPIC else OTHER,
            partitions=[fetch.FetchPartition(partition=number) for number in numbers],
        )
        for name, numbers in shape
    ]
    answer = same(pairs.controllers, lambda *_: m.FetchRequest(topics=topics))
    assert answer.error_code == INVALID
    request = m.FetchRequest(cluster_id="another", topics=topics)
    answer = same(pairs.controllers, lambda *_: request, *FETCH_VERSIONS)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_fetches_by_name_are_refused_alike(pairs: Pairs) -> None:
    partition = fetch.FetchPartition(partition=0)
    topic = fetch.FetchTopic(topic=TOPIC, partitions=[partition])
    request = m.FetchRequest(max_bytes=1_000, topics=[topic])
    same(pairs.controllers, lambda *_: request, *range(4, 13))


@pytest.mark.parametrize(
    "request_", [m.AddRaftVoterRequest, m.RemoveRaftVoterRequest, m.UpdateRaftVoterRequest]
)
def test_changes_of_another_cluster_are_refused_alike(pairs: Pairs, request_: Any) -> None:
    answer = same(pairs.controllers, lambda *_: request_(cluster_id="another"))
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


# What the listeners announce


def test_the_controllers_features_are_announced_alike(pairs: Pairs) -> None:
    """The quorum reads kraft.version here."""
    request = m.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    theirs, ours = (side.ask(request, 4) for side in pairs.controllers)
    assert plain(ours.supported_features) == plain(theirs.supported_features)
    answer = read_response(ours, LISTENER)
    assert isinstance(answer, rpc.ApiVersionsResponse)
    assert answer.kraft_versions == (0, 1)
    announced = {each.api_key: (each.min_version, each.max_version) for each in ours.api_keys}
    apaches = {each.api_key: (each.min_version, each.max_version) for each in theirs.api_keys}
    assert announced.items() <= apaches.items()
    quorum = {1, 52, 53, 54, 55, 59, 80, 81, 82}
    assert quorum <= set(announced)


# Last: they end the leadership of both, which then lead again.


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_later_epoch_ends_a_leadership_alike(pairs: Pairs, version: int) -> None:
    """The only voter grants no vote to a log that is behind, and elects itself again."""
    answers = []
    for side in pairs.controllers:
        quorum = quorum_of(side)
        request = rpc.VoteRequest(epoch=epoch_of(quorum, 5), candidate=key(2), last=position(0, 0))
        message = request_message(request, version, SENDER)
        answer = side.ask(message, version)
        answers.append(comparable(answer, quorum.epoch))
        wait_for(partial(leads_beyond, side, quorum.epoch + 5), "the next leadership")
    assert answers[1] == answers[0]
    assert answers[0]["topics"][0]["partitions"][0]["leader_epoch"] == 5


def leads_beyond(side: Asker, epoch: int) -> bool:
    found = described(side)
    return found is not None and found.leader_id == 1 and found.leader_epoch > epoch
