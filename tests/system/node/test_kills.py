"""A node that is killed again and again under load, at random moments and at bad ones, keeps every
promise: nothing acknowledged is lost or duplicated, order is kept, offsets never move back.
"""

import random
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.running_node import QUICK_SETTINGS, RunningNode
from support.waiting import wait_at_random, wait_for
from support.wire_client import WireClient
from system.node.kill_changes import Changes
from system.node.kill_history import (
    CompactedLog,
    History,
    KeptLog,
    Watermarks,
    check_committed,
    check_trimmed,
)
from system.node.kill_load import LoadThread, MemberThread, ProducerThread
from system.node.questions import Place, create_topics, find_coordinator, produce, set_config

from moldau.testing import broker

POLICIES = ("group", "os", "strict")
GROUP = "readers"
KEPT, COMPACTED, TRIMMED = "kept", "compacted", "trimmed"
PLACES: list[Place] = [(name, index) for name in (KEPT, COMPACTED, TRIMMED) for index in (0, 1)]
TOPICS = {
    KEPT: {"internal.segment.bytes": "20000"},
    COMPACTED: {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "4000",
        "min.cleanable.dirty.ratio": "0.01",
    },
    TRIMMED: {
        "retention.bytes": "30000",
        "internal.segment.bytes": "4000",
        "file.delete.delay.ms": "50",
    },
}
# Groups' offsets are compacted as often.
OFFSETS_TOPIC = {"internal.segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
# All periodic work happens all the time.
SETTINGS = QUICK_SETTINGS | {
    "group.min.session.timeout.ms": "1000",
    "internal.metadata.log.segment.bytes": "20000",
    "log.cleaner.backoff.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "50",
    "log.retention.check.interval.ms": "20",
    "metadata.log.max.record.bytes.between.snapshots": "5000",
    "metadata.max.retention.bytes": "40000",
    "replica.high.watermark.checkpoint.interval.ms": "50",
}
SIGHT_DEADLINE_S = 1.0


class Run:
    """One node's life and deaths, with a load that never stops."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.node = RunningNode(folder, SETTINGS)
        self.history = History()
        self.watermarks = Watermarks(PLACES)
        self.changes = Changes((TRIMMED, 1), self.watermarks, self.chance)
        self._kept = [KeptLog(place) for place in PLACES if place[0] == KEPT]
        self._producers: list[ProducerThread] = []
        self._members: list[MemberThread] = []
        self.guest: MemberThread | None = None
        self.rebalances = 0

    # Life

    def set_up(self) -> None:
        self.node.start()
        with WireClient(self.node.address) as client:
            for name, configs in TOPICS.items():
                ((code, text),) = create_topics(client, {name: 2}, configs).values()
                assert code == 0, text
            wait_for(lambda: find_coordinator(client, GROUP) == 0, "the coordinator")
            for name, value in OFFSETS_TOPIC.items():
                assert set_config(client, "__consumer_offsets", name, value) == 0
        for number in range(3):
            name = f"producer-{number}"
            producer = ProducerThread(name, self.node.address, PLACES, self.history, self.seed)
            self._producers.append(producer)
            producer.start()
        self._members = [self.new_member("member")]

    def new_member(self, name: str) -> MemberThread:
        member = MemberThread(name, self.node.address, GROUP, KEPT, self.history)
        member.start()
        return member

    def start(self, policy: str) -> None:
        self.node.settings = SETTINGS | {"moldau.flush.policy": policy}
        self.node.start()

    @property
    def _threads(self) -> list[LoadThread]:
        return [*self._producers, *self._members, *([self.guest] if self.guest else [])]

    def end(self) -> None:
        for thread in self._threads:
            thread.finish()

    def give_up(self) -> None:
        """Something else has failed: do not wait for them."""
        for thread in self._threads:
            thread.stopped.set()

    # Checks

    def check(self) -> None:
        with WireClient(self.node.address) as client:
            self.watermarks.look(client)
            ends = self.watermarks.ends
            for log in self._kept:
                log.check(client, self.history, ends[log.place])
            for place in PLACES:
                if place[0] != KEPT:
                    self._check_cleaned(client, place)
            check_committed(client, GROUP, self.history)
            self.changes.check(client)
        assert not self.history.problems, "\n".join(self.history.problems[:5])
        # Only records that retention or compaction removed may have lost their offset.
        assert all(place[0] != KEPT for place in self.history.unplaced)

    def _check_cleaned(self, client: WireClient, place: Place) -> None:
        start, end = self.watermarks.starts[place], self.watermarks.ends[place]
        if place[0] == TRIMMED:
            check_trimmed(client, place, end, self.history)
        else:
            CompactedLog(place, self.history).check(client, start, end)

    def check_everything_arrived(self) -> None:
        """Call it once producers have ended and got their responses."""
        self.check()
        for log in self._kept:
            sent = {p.name: p.sent[log.place] for p in self._producers if p.sent[log.place]}
            assert dict(log.next_numbers) == sent, log.place

    def look(self) -> None:
        """Records what is visible now, which must be there after the kill."""
        with WireClient(self.node.address) as client:
            self.watermarks.look(client)

    # Waiting

    def wait_for_load(self) -> None:
        """It is a kill under load only if producers got through."""
        wanted = self.history.acked_count + 20
        wait_for(
            lambda: self.history.acked_count >= wanted or bool(self.history.problems),
            "acknowledgements",
        )

    def wait_randomly(self, seconds_max: float) -> None:
        """Kills come at any time; nothing depends on how long this takes."""
        wait_at_random(self.chance, seconds_max)

    def wait_to_see(self, topic: str, *endings: str) -> None:
        """Waits until such a file exists; or does not, for a while."""
        folders = [self.node.log_folder / f"{topic}-{index}" for index in (0, 1)]

        def is_there() -> bool:
            with suppress(FileNotFoundError):
                return any(
                    path.name.endswith(endings) for folder in folders for path in folder.iterdir()
                )
            return False

        with suppress(AssertionError):
            wait_for(is_there, "files", SIGHT_DEADLINE_S)


# Moments to be killed at


def under_load(run: Run) -> None:
    run.wait_randomly(0.2)
    run.node.kill()


def changing_topics(run: Run) -> None:
    with WireClient(run.node.address) as client:
        count = run.chance.randint(5, 25)
        run.changes.begin(client, count)
        run.changes.collect(client, run.chance.randint(0, count - 1))
        run.wait_randomly(0.02)
        run.node.kill()
        run.changes.collect_rest(client)


def rebalancing(run: Run) -> None:
    if run.guest is None:
        run.guest = run.new_member(f"guest-{run.rebalances}")
        run.rebalances += 1
    else:
        run.guest.stopped.set()
    run.wait_randomly(0.15)
    run.node.kill()
    if run.guest.stopped.is_set():
        # It leaves or times out; the group notices either way.
        run.start(run.chance.choice(POLICIES))
        run.guest.finish()
        run.guest = None
        run.node.kill()


def compacting(run: Run) -> None:
    run.wait_to_see(COMPACTED, ".cleaned", ".swap")
    run.node.kill()


def deleting_segments(run: Run) -> None:
    run.wait_to_see(TRIMMED, ".deleted")
    run.node.kill()


def stopping(run: Run) -> None:
    process = run.node.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    run.wait_randomly(0.1)
    run.node.kill()


def not_at_all(run: Run) -> None:
    """A clean stop under load, in the same row."""
    assert run.node.stop() == 0


def recovering(run: Run) -> None:
    run.node.kill()
    process = run.node.launch()
    with suppress(subprocess.TimeoutExpired):
        process.wait(run.chance.uniform(0.1, 0.6))
    run.node.kill()


MOMENTS: tuple[Callable[[Run], None], ...] = (
    under_load,
    changing_topics,
    rebalancing,
    compacting,
    deleting_segments,
    stopping,
    recovering,
    not_at_all,
)


def schedule(kills: int, chance: random.Random) -> Iterator[tuple[Callable[[Run], None], str]]:
    """All moments with all policies, in another order each time round."""
    pairs: list[tuple[Callable[[Run], None], str]] = []
    for number in range(kills):
        if not pairs:
            turn = number // len(MOMENTS)
            pairs = [(m, POLICIES[(turn + i) % 3]) for i, m in enumerate(MOMENTS)]
            chance.shuffle(pairs)
        yield pairs.pop()


def run_kills(folder: Path, kills: int) -> None:
    seed = secrets.token_hex(4)
    print(f"seed {seed}")  # noqa: T201 - shown if the test fails
    run = Run(folder, seed)
    with run.node:
        run.set_up()
        for number, (moment, policy) in enumerate(schedule(kills, run.chance)):
            try:
                run.wait_for_load()
                run.look()
                moment(run)
                run.start(policy)
                run.check()
            except AssertionError as error:
                run.give_up()
                error.add_note(f"seed {seed}, kill {number} while {moment.__name__}, {policy}")
                error.add_note(run.node.errors[-3000:])
                raise
        run.end()
        run.check_everything_arrived()
        assert run.node.stop() == 0
        run.start("group")
        run.check_everything_arrived()
        assert run.node.stop() == 0
        print(f"{run.history.acked_count} acknowledged, {run.changes.answered_count} changes")  # noqa: T201


@pytest.mark.parametrize(
    ("values", "acked", "complaint"),
    [
        (["a 0", "a 1", "b 0"], {1: "a 1"}, None),
        (["a 0", "a 2"], {}, "where number 1 belongs"),
        (["a 1", "a 0"], {}, "where number 0 belongs"),
        (["a 0", "b 0", "a 0"], {}, "where number 1 belongs"),
        (["a 0", "a 1"], {1: "b 0"}, "has changed"),
    ],
)
def test_broken_promises_are_noticed(
    values: list[str], acked: dict[int, str], complaint: str | None
) -> None:
    """Checks the checks."""
    history = History()
    for offset, value in acked.items():
        history.record_acked((KEPT, 0), offset, value.encode())
    log = KeptLog((KEPT, 0))
    with broker() as running, WireClient(running.bootstrap) as client:
        running.create_topic(KEPT)
        produce(client, KEPT, *(value.encode() for value in values))
        if complaint is None:
            log.check(client, history, len(values))
        else:
            with pytest.raises(AssertionError, match=complaint):
                log.check(client, history, len(values))


def test_promises_survive_kills_at_bad_moments(tmp_path: Path) -> None:
    run_kills(tmp_path, len(MOMENTS))


@pytest.mark.slow
def test_promises_survive_two_hundred_kills(tmp_path: Path) -> None:
    run_kills(tmp_path, 200)
