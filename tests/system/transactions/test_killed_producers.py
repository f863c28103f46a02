"""Producers that are killed, or only seem to be, at each step of a transaction: the next producer
with their transactional id fences them, and nothing of their unfinished work is ever visible.
"""

from collections.abc import Callable, Iterator

import pytest
from support.running_node import QUICK_SETTINGS, RunningNode, fresh_name
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic
from system.node.questions import committed
from system.transactions.committed_view import is_all_stable, read_committed, wait_until_stable
from system.transactions.decisions import check_all_decided
from system.transactions.stepping_producer import (
    GROUP,
    OFFSET,
    PLACES,
    TOPIC,
    Step,
    go_to,
    stopped_at,
)
from system.transactions.wire_producer import Style, WireProducer

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

SHUT_OUT = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
UNDECIDED = [step for step in Step if step < Step.END_SENT]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """At the end its files are checked."""
    folder = tmp_path_factory.mktemp("node")
    settings = QUICK_SETTINGS | {
        "moldau.reserve.bytes": "0",
        "transaction.state.log.num.partitions": "3",
    }
    with RunningNode(folder, settings) as running:
        running.start()
        create_topic(running.address, TOPIC, len(PLACES))
        yield running
        with WireClient(running.address) as client:
            wait_until_stable(client, PLACES)
        assert running.stop() == 0
        check_all_decided(running.log_folder, [TOPIC, "__consumer_offsets"])


@pytest.fixture
def client(node: RunningNode) -> Iterator[WireClient]:
    with WireClient(node.address) as connection:
        yield connection


def seen_of(client: WireClient, *values: bytes) -> list[list[bytes]]:
    """The records of these that readers see in each partition."""
    wait_until_stable(client, PLACES)
    return [[v for v in read_committed(client, place) if v in values] for place in PLACES]


def group_offset(client: WireClient) -> int:
    code, offsets = committed(client, GROUP)
    assert code == 0
    return offsets.get(PLACES[0], -1)


@pytest.mark.parametrize("style", Style)
@pytest.mark.parametrize("step", Step)
def test_the_transaction_of_a_killed_producer_is_ended_by_its_successor(
    node: RunningNode, client: WireClient, step: Step, style: Style
) -> None:
    name = fresh_name("killed")
    with WireProducer(node.address, fresh_name("reset")) as reset:
        reset.init().send_offsets(GROUP, {PLACES[0]: 0})
        reset.end(commits=True)
    with stopped_at(step, node.address, name, style) as process:
        process.kill()
        process.wait()
        with WireProducer(node.address, name, style) as heir:
            heir.init()
            values = name.encode(), b"heir of " + name.encode()
            seen = seen_of(client, *values)
            went_through = seen[0] != []
            if step is not Step.END_SENT:
                assert went_through is (step is Step.ENDED)
            assert seen == ([[values[0]]] * 2 if went_through else [[], []])
            wait_for(lambda: group_offset(client) == (OFFSET if went_through else 0), "the offset")
            go_to(Step.ENDED, heir, values[1])
            assert seen_of(client, *values) == [[*each, values[1]] for each in seen]
            wait_for(lambda: group_offset(client) == OFFSET, "the heir's offset")


def _write(zombie: WireProducer) -> None:
    # It sends no other request before: it assumes that its earlier partitions are part of its
    # transaction.
    zombie.send(PLACES[0], b"by a zombie")


def _write_elsewhere(zombie: WireProducer) -> None:
    zombie.send(PLACES[1], b"by a zombie")


def _send_offsets(zombie: WireProducer) -> None:
    zombie.send_offsets(GROUP, {PLACES[0]: 1_000})


def _commit(zombie: WireProducer) -> None:
    zombie.end(commits=True)


def _abort(zombie: WireProducer) -> None:
    zombie.end(commits=False)


DEEDS: tuple[Callable[[WireProducer], None], ...] = (
    _write,
    _write_elsewhere,
    _send_offsets,
    _commit,
    _abort,
)


@pytest.mark.parametrize("heir_at", [Step.BEGUN, Step.WRITTEN_EVERYWHERE, Step.ENDED])
@pytest.mark.parametrize("style", Style)
@pytest.mark.parametrize("step", UNDECIDED)
def test_a_zombie_is_fenced_in_every_step(
    node: RunningNode, client: WireClient, step: Step, style: Style, heir_at: Step
) -> None:
    name = fresh_name("zombie")
    before, after = name.encode(), b"heir of " + name.encode()
    with (
        WireProducer(node.address, name, style) as zombie,
        WireProducer(node.address, name, style) as heir,
    ):
        go_to(step, zombie.init(), before)
        go_to(heir_at, heir.init(), after)
        for deed in DEEDS:
            with pytest.raises(KafkaError) as refused:
                deed(zombie)
            assert refused.value.code in SHUT_OUT, (deed.__name__, refused.value)
        if heir_at is not Step.ENDED:
            # Nothing that the zombie tried affected it.
            if heir_at is Step.BEGUN:
                heir.send(PLACES[0], after)
                heir.send(PLACES[1], after)
            heir.end(commits=True)
        assert seen_of(client, before, after, b"by a zombie") == [[after], [after]]
        assert group_offset(client) < 1_000
        assert is_all_stable(client, PLACES)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_zombie_is_not_mistaken_for_its_heir(node: RunningNode, commits: bool) -> None:
    """A retried end has the epoch before the current one. So has a zombie whose successor is an
    older client, which keeps its epoch when it ends a transaction.
    """
    name = fresh_name("mistaken")
    with (
        WireProducer(node.address, name, Style.V2) as zombie,
        WireProducer(node.address, name, Style.V1) as heir,
    ):
        zombie.init()
        heir.init().send(PLACES[0], name.encode())
        heir.end(commits=commits)
        assert heir.epoch == zombie.epoch + 1
        with pytest.raises(KafkaError) as refused:
            zombie.end(commits=commits)
        assert refused.value.code in SHUT_OUT
        heir.send(PLACES[0], name.encode())
        heir.end(commits=True)
