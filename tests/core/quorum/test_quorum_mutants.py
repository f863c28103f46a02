"""Faults planted into a copy of the quorum machine. The simulation finds each of them, so it would
find such a mistake.
"""

import sys
from pathlib import Path

import pytest
from support.mutants import Mutant, finding

pytestmark = pytest.mark.slow

SEEDS = 1_000
# Prints the first seed at which a promise is broken.
PROGRAM = f"""
from core.quorum.test_quorum_simulation import schedule
for seed in range({SEEDS}):
    try:
        schedule(seed)
    except Exception as error:
        print(seed, type(error).__name__, error)
        break
"""


MUTANTS = [
    Mutant(
        "the vote is not stored",
        "core/quorum/state",
        "        self.role.election_due_ms = self._next_election_ms()\n        self._store()",
        "        self.role.election_due_ms = self._next_election_ms()",
    ),
    Mutant(
        "a candidate does not store its epoch",
        "core/quorum/state",
        "self._enter(self._candidate(LeaderEpoch(self.epoch + 1)), is_stored=True)",
        "self._enter(self._candidate(LeaderEpoch(self.epoch + 1)))",
    ),
    Mutant(
        "the vote is forgotten at a restart",
        "core/quorum/state",
        "epoch, voted_for, leader_id = stored.epoch, stored.voted_for",
        "epoch, voted_for, leader_id = stored.epoch, None",
    ),
    Mutant(
        "a second vote in an epoch",
        "core/quorum/elections",
        "                return role.voted_for.is_same(request.candidate)",
        "                return is_up_to_date",
    ),
    Mutant(
        "a vote for a shorter log",
        "core/quorum/elections",
        "is_up_to_date=last >= state.log.end",
        "is_up_to_date=True",
    ),
    Mutant(
        "lengths of logs are compared without their epochs",
        "core/quorum/elections",
        "is_up_to_date=last >= state.log.end",
        "is_up_to_date=last.offset >= state.log.end.offset",
    ),
    Mutant(
        "a minority elects",
        "core/quorum/votes",
        "return len(self._voters) // 2 + 1",
        "return max(1, len(self._voters) // 2)",
    ),
    Mutant(
        "records of an earlier epoch are committed without one of this epoch",
        "core/quorum/leading",
        "if reached <= max(leader.start_offset, leader.high_watermark):",
        "if reached <= leader.high_watermark:",
    ),
    Mutant(
        "the leader alone commits",
        "core/quorum/leading",
        "return descending[len(descending) // 2]",
        "return descending[0]",
    ),
    Mutant(
        "the leader counts what it has not flushed",
        "core/quorum/leading",
        "min(\n            state.log.flushed_offset, state.log.end.offset\n        )",
        "state.log.end.offset",
    ),
    Mutant(
        "a follower acknowledges what it has not flushed",
        "core/quorum/following",
        "return not self._state.counts_acknowledgements or log.flushed_offset >= log.end.offset",
        "return True",
    ),
    Mutant(
        "check-quorum is off",
        "core/quorum/leading",
        "has_lost = needs_others and state.now_ms >= leader.check_quorum_due_ms",
        "has_lost = False",
    ),
    Mutant(
        "no truncation",
        "core/quorum/following",
        "        if response.diverging is not None:\n            self._truncate(role, response)",
        "        if response.diverging is not None:\n            pass",
    ),
    Mutant(
        "truncation without regard to epochs",
        "core/quorum/positions",
        "    if diverging.epoch == 0:",
        "    if True:",
    ),
    Mutant(
        "a stale answer is applied",
        "core/quorum/following",
        "if request.position != state.log.end:",
        "if False:",
    ),
    Mutant(
        "the leader compares offsets without epochs",
        "core/quorum/positions",
        "if local.epoch != follower.epoch or local.offset < follower.offset:",
        "if log.end.offset < follower.offset:",
    ),
    Mutant(
        "a follower believes any high watermark",
        "core/quorum/following",
        "reached = Offset(min(role.leader_high_watermark, state.log.end.offset))",
        "reached = role.leader_high_watermark",
    ),
    Mutant(
        "truncated voters stay in force",
        "core/quorum/machine",
        "state.history.truncate(end_offset)",
        "pass",
    ),
    Mutant(
        "new voters do not count",
        "core/quorum/leading",
        "        self._follow_voters(leader)\n        self.count()",
        "        self.count()",
    ),
    Mutant(
        "an old leader is followed",
        "core/quorum/elections",
        "        if epoch < self._state.epoch:\n            return ErrorCode.FENCED_LEADER_EPOCH\n",
        "",
    ),
    Mutant(
        "a change of the voters before the last one is committed",
        "core/quorum/voter_changes",
        "return self._state.history.voters_offset < leader.high_watermark",
        "return True",
    ),
    Mutant(
        "observers count",
        "core/quorum/leading",
        "if progress is not None and progress.key.is_same(replica):",
        "if progress is not None:",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_simulation_finds_it(mutant: Mutant, tmp_path: Path) -> None:
    found = finding(mutant, PROGRAM, tmp_path)
    assert found, f"{SEEDS} schedules found nothing"
    sys.stdout.write(f"found at seed {found}\n")
