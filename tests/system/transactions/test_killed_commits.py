"""A node that is killed anywhere between the request for a transaction's end and its last write:
the next start decides every transaction once, completely, and no client waits for ever.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from support.running_node import QUICK_SETTINGS
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic
from system.node.questions import Place, committed
from system.transactions.committed_view import read_committed, wait_until_stable
from system.transactions.decisions import check_all_decided, read_decisions
from system.transactions.dying_node import Death, DyingNode
from system.transactions.wire_producer import Style, WireProducer

from moldau.protocol.errors import KafkaError

TOPIC, GROUP, OFFSETS_TOPIC = "written", "readers", "__consumer_offsets"
PLACES: list[Place] = [(TOPIC, index) for index in range(3)]
# The decision, four markers (the group's, too) and the end are each written and synced. Where a
# transaction was aborted is written to an index as well.
COMMIT_EFFECTS, ABORT_EFFECTS = range(12), range(16)
BAD_MOMENTS = [0, 1, 3, 8, 10]
DEATHS_MAX = 100
TIMEOUT_MS = 300_000
SETTINGS = QUICK_SETTINGS | {
    "moldau.reserve.bytes": "0",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}


# The next actor after the kill


def same_producer_retries(producer: WireProducer, *, commits: bool) -> bool:
    """It ends as requested."""
    producer.end(commits=commits)
    return commits


def another_producer_starts(producer: WireProducer, *, commits: bool) -> bool:
    """An undecided transaction is aborted."""
    with WireProducer(producer.address, producer.transactional_id, producer.style) as heir:
        heir.init()
    return False


def no_producer_returns(producer: WireProducer, *, commits: bool) -> bool:
    """An undecided transaction times out."""
    return False


Sequel = Callable[..., bool]
SEQUELS: tuple[Sequel, ...] = (same_producer_retries, another_producer_starts, no_producer_returns)


class Deaths:
    """One directory, killed again and again. Each life ends with a transaction."""

    def __init__(self, folder: Path, style: Style, *, commits: bool) -> None:
        self.node = DyingNode(folder, SETTINGS)
        self.style = style
        self.commits = commits
        self.number = 0
        self._visible: list[bytes] = []
        self._offset = 0

    def set_up(self, first: Death) -> None:
        self.node.death = first
        self.node.start()
        create_topic(self.node.address, TOPIC, len(PLACES))
        with WireProducer(self.node.address, "first") as producer:
            producer.init().send_offsets(GROUP, {PLACES[0]: 0})
            producer.end(commits=True)

    def die(self, sequel: Sequel, following: Death | None) -> None:
        """The node dies as it was started to, and is started again to die as in `following`."""
        with self._new_producer() as producer:
            is_decided = self._transact(producer)
            self.node.death = following
            self.node.ahead_ms = 2 * TIMEOUT_MS if sequel is no_producer_returns else 0
            self.node.start()
            is_visible = sequel(producer, commits=self.commits)
        if self.commits if is_decided else is_visible:
            self._expect_last()
        self.check()

    def die_again_and_again(self, *, loses: bool) -> int:
        """Each time one effect later, until every decided transaction is complete. Returns the
        number of deaths.
        """
        with self._new_producer() as producer:
            assert self._transact(producer)
        self._expect_last()
        for effect in range(DEATHS_MAX):
            self.node.death = Death("", effect, loses)
            process = self.node.launch()
            wait_for(lambda: process.poll() is not None or self._is_complete(producer), "the end")  # noqa: B023
            if process.poll() is None:
                return effect
        raise AssertionError("the recovery makes no progress")

    def _is_complete(self, producer: WireProducer) -> bool:
        if not (self.node.folder / "ready").exists():
            return False
        last = read_decisions(self.node.log_folder).last[producer.transactional_id]
        return last.state.text.startswith("Complete")

    def _new_producer(self) -> WireProducer:
        assert self.node.death is not None
        name = self.node.death.transactional_id
        return WireProducer(self.node.address, name, self.style, TIMEOUT_MS)

    def _transact(self, producer: WireProducer) -> bool:
        """Runs to the death; returns whether the end is decided."""
        death = self.node.death
        assert death is not None
        self.number += 1
        producer.init()
        for place in PLACES:
            producer.send(place, b"%d" % self.number)
        producer.send_offsets(GROUP, {PLACES[0]: self.number})
        was_answered = producer.end_unheard(commits=self.commits)
        self._wait_for_death()
        is_decided = self._is_decided(death)
        assert is_decided or not was_answered, "the answer came before the decision was safe"
        return is_decided

    def _expect_last(self) -> None:
        """It is committed."""
        self._visible.append(b"%d" % self.number)
        self._offset = self.number

    def _wait_for_death(self) -> None:
        process = self.node.process
        assert process is not None
        wait_for(lambda: process.poll() is not None, "the death")

    def _is_decided(self, death: Death) -> bool:
        """According to the files."""
        state = read_decisions(self.node.log_folder).last[death.transactional_id].state.text
        wanted = "Commit" if self.commits else "Abort"
        assert state in {"Ongoing", f"Prepare{wanted}", f"Complete{wanted}"}
        is_safe = death.effect > (1 if death.loses_unsynced else 0)
        assert (state != "Ongoing") is is_safe
        return is_safe

    def check(self) -> None:
        """Everything that was ended is visible, or nothing of it."""
        with WireClient(self.node.address) as client:
            wait_until_stable(client, PLACES)
            for place in PLACES:
                assert read_committed(client, place) == self._visible, place
            # Its marker is as late as any other.
            wait_for(
                lambda: committed(client, GROUP) == (0, {PLACES[0]: self._offset}),
                f"offset {self._offset}",
            )

    def end(self) -> None:
        self.node.kill()
        self.node.death, self.node.ahead_ms = None, 0
        self.node.start()
        self.check()
        assert self.node.stop() == 0
        check_all_decided(self.node.log_folder, [TOPIC, OFFSETS_TOPIC])


def die_at(
    folder: Path, style: Style, effects: Iterable[int], *, commits: bool, turn: int = 0
) -> None:
    """`turn` selects the next actor after each death, and which of them are power cuts."""
    deaths = Deaths(folder, style, commits=commits)
    plan = [Death(f"dies-at-{each}", each, (each + turn) % 2 == 1) for each in effects]
    with deaths.node:
        deaths.set_up(plan[0])
        for number, (death, following) in enumerate(zip(plan, [*plan[1:], None], strict=True)):
            sequel = SEQUELS[(number + turn) % len(SEQUELS)]
            try:
                deaths.die(sequel, following)
            except (AssertionError, KafkaError) as error:
                error.add_note(f"{style.name} {commits=} {death} {sequel.__name__}")
                error.add_note(f"{deaths.node.effects} {deaths.node.errors[-3000:]}")
                raise
        deaths.end()


def test_a_commit_that_is_interrupted_is_decided_once(tmp_path: Path) -> None:
    die_at(tmp_path, Style.V2, BAD_MOMENTS, commits=True)


def test_an_abort_that_is_interrupted_is_decided_once(tmp_path: Path) -> None:
    die_at(tmp_path, Style.V1, BAD_MOMENTS, commits=False, turn=1)


@pytest.mark.slow
@pytest.mark.parametrize("loses", [False, True], ids=["sigkill", "power-cut"])
@pytest.mark.parametrize("style", Style)
def test_decisions_survive_every_death_of_the_nodes_that_complete_them(
    tmp_path: Path, style: Style, loses: bool
) -> None:
    deaths = Deaths(tmp_path, style, commits=True)
    with deaths.node:
        try:
            deaths.set_up(Death("decided", 2))
            # Four markers and the end are written and synced, at least.
            assert deaths.die_again_and_again(loses=loses) >= 10
            deaths.end()
        except AssertionError as error:
            error.add_note(f"{deaths.node.death} {deaths.node.effects}")
            error.add_note(deaths.node.errors[-3000:])
            raise


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("style", Style)
def test_every_end_that_is_interrupted_anywhere_is_decided_once(
    tmp_path: Path, style: Style, commits: bool, turn: int
) -> None:
    effects = COMMIT_EFFECTS if commits else ABORT_EFFECTS
    die_at(tmp_path, style, effects, commits=commits, turn=turn)
