"""Mistakes planted into a copy of the package, most of them into the shell of the quorum and into
the controller. The stories of a cluster find each of them, so they would find such a mistake.
docs/explanation/simulation.md says after how many seeds.
"""

import sys
from pathlib import Path

import pytest
from support.mutants import Mutant, finding

pytestmark = pytest.mark.slow

SEEDS = 150
# Prints the first seed whose story ends badly.
PROGRAM = f"""
from testing.simulation.cluster.cluster_story import story
for seed in range({SEEDS}):
    try:
        story(seed)
    except Exception as error:
        print(seed, type(error).__name__, str(error).splitlines()[0])
        break
"""

MUTANTS = [
    # Those of the pure machine: tests/core/quorum has more of them, and a faster simulation.
    Mutant(
        "the vote is not stored",
        "core/quorum/state",
        "        self.role.election_due_ms = self._next_election_ms()\n        self._store()",
        "        self.role.election_due_ms = self._next_election_ms()",
    ),
    Mutant(
        "records of an earlier epoch are committed alone",
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
        "no truncation",
        "core/quorum/following",
        "        if response.diverging is not None:\n            self._truncate(role, response)",
        "        if response.diverging is not None:\n            pass",
    ),
    Mutant(
        "check-quorum is off",
        "core/quorum/leading",
        "has_lost = needs_others and state.now_ms >= leader.check_quorum_due_ms",
        "has_lost = False",
    ),
    # The shell of the quorum.
    Mutant(
        "effects do not wait for the disk",
        "broker/quorum/machine_driver",
        'self._tasks.start(slow, "perform a quorum effect")\n                    return True',
        'self._tasks.start(slow, "perform a quorum effect")\n                    continue',
    ),
    Mutant(
        "what is not flushed counts",
        "broker/quorum/metadata_log",
        "        return Offset(self.log.flushed_offset)",
        "        return Offset(self.log.log_end_offset)",
    ),
    Mutant(
        "own batches are kept after the leadership",
        "broker/quorum/committed_batches",
        "        self.appended.clear()",
        "        pass",
    ),
    Mutant(
        "a leader is active before it knows everything that is committed",
        "broker/quorum/leadership",
        "self._batches.when_done(lambda: self._lead(changed.epoch))",
        "self._lead(changed.epoch)",
    ),
    Mutant(
        "listeners miss the leader's snapshot",
        "broker/quorum/effects",
        "        parts.batches.load(loaded.image)\n",
        "",
    ),
    Mutant(
        "the election is not synced",
        "broker/quorum/metadata_log",
        "yield lambda: write_atomically(filesystem, path, content)",
        "yield lambda: filesystem.open(path, create=True).write_at(0, content)",
    ),
    # The controller.
    Mutant(
        "the controller answers before its records are committed",
        "broker/controller/controller_node",
        "                await self._quorum.wait_committed(leadership.last_appended)\n",
        "                pass\n",
    ),
    Mutant(
        "the controller continues from its own image of before",
        "broker/controller/controller_node",
        "        self._controller.load(self._metadata.image)\n",
        "",
    ),
    Mutant(
        "stale broker epochs are accepted",
        "core/controller/decision_context",
        "        if broker.epoch != broker_epoch:\n",
        "        if False:\n",
    ),
    Mutant(
        "a new incarnation keeps the broker epoch",
        "core/controller/brokers/registrations",
        "        record.broker_epoch = context.next_offset\n",
        "        record.broker_epoch = before.epoch if before else context.next_offset\n",
    ),
    Mutant(
        "a broker that is gone is never fenced",
        "core/controller/brokers/sessions",
        "        return heard_at_ms + self.session_timeout_ms < now_ms",
        "        return False",
    ),
    Mutant(
        "producer ids are given twice",
        "core/controller/producer_ids",
        "next_producer_id=first + BLOCK_SIZE",
        "next_producer_id=first",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_stories_find_it(mutant: Mutant, tmp_path: Path) -> None:
    found = finding(mutant, PROGRAM, tmp_path)
    assert found, f"{SEEDS} stories found nothing"
    sys.stdout.write(f"found at seed {found}\n")
