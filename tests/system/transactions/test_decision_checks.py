"""Checks the checks: states that a node must never leave in its files are detected."""

import pytest
from system.node.questions import Place
from system.transactions.decisions import (
    Decided,
    Decisions,
    PartitionStory,
    Told,
    check_agreement,
)

A, B = ("topic", 0), ("topic", 1)
ONE, TWO = (1, 0), (1, 1)
COMMIT, ABORT = True, False


def told(*ends: bool, of: tuple[int, int] = ONE, empty: bool = False) -> list[Told]:
    return [Told(of, commits, not empty, 0) for commits in ends]


def decided(*ends: bool, at: tuple[Place, ...] = (A, B)) -> list[Decided]:
    return [Decided(ONE, commits, frozenset(at)) for commits in ends]


@pytest.mark.parametrize(
    ("decisions", "stories"),
    [
        (decided(COMMIT), {A: told(COMMIT), B: told(COMMIT)}),
        (decided(COMMIT, at=(A,)), {A: told(COMMIT), B: []}),
        # Repeated after a crash, and added without a write.
        (decided(COMMIT), {A: told(COMMIT) + told(COMMIT, empty=True), B: told(COMMIT)}),
        (decided(ABORT), {A: told(ABORT, empty=True), B: told(ABORT)}),
        (decided(ABORT, COMMIT), {A: told(ABORT, COMMIT), B: told(ABORT, COMMIT)}),
    ],
)
def test_consistent_files_are_accepted(
    decisions: list[Decided], stories: dict[Place, list[Told]]
) -> None:
    check_agreement(Decisions(decisions, {}), _stories(stories))


@pytest.mark.parametrize(
    ("decisions", "stories", "complaint"),
    [
        (decided(COMMIT), {A: told(COMMIT), B: []}, "decided and not told"),
        (decided(COMMIT), {A: told(COMMIT), B: told(ABORT)}, "but decided was"),
        (decided(COMMIT), {A: told(COMMIT, ABORT), B: told(COMMIT)}, "but decided was"),
        (decided(COMMIT), {A: told(COMMIT, COMMIT), B: told(COMMIT)}, "but decided was"),
        (decided(COMMIT, ABORT), {A: told(ABORT, COMMIT), B: told(COMMIT, ABORT)}, "decided was"),
        (decided(COMMIT), {A: told(COMMIT), B: told(COMMIT, of=TWO)}, "but decided was"),
        (
            decided(COMMIT),
            {A: told(COMMIT) + told(ABORT, empty=True), B: told(COMMIT)},
            "but decided was",
        ),
        (decided(COMMIT, COMMIT, at=(A,)), {A: told(COMMIT), B: []}, "was decided, told"),
    ],
)
def test_contradictions_are_detected(
    decisions: list[Decided], stories: dict[Place, list[Told]], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_agreement(Decisions(decisions, {}), _stories(stories))


def test_open_transactions_are_detected() -> None:
    open_ended = {A: PartitionStory(told(COMMIT), {1: 4})}
    with pytest.raises(AssertionError, match="without an end"):
        check_agreement(Decisions(decided(COMMIT, at=(A,)), {}), open_ended)


def _stories(stories: dict[Place, list[Told]]) -> dict[Place, PartitionStory]:
    return {place: PartitionStory(all_told, {}) for place, all_told in stories.items()}
