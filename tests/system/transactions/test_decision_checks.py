"""Checks the checks: states that a node must never leave in its files are detected."""

import pytest
from system.node.questions import Place
from system.transactions.decisions import (
    Decided,
    Decisions,
    PartitionStory,
    WrittenMarker,
    check_agreement,
)

A, B = ("topic", 0), ("topic", 1)
ONE, TWO = (1, 0), (1, 1)
COMMIT, ABORT = True, False


def markers(*ends: bool, of: tuple[int, int] = ONE, empty: bool = False) -> list[WrittenMarker]:
    return [WrittenMarker(of, commits, not empty, 0) for commits in ends]


def decided(*ends: bool, at: tuple[Place, ...] = (A, B)) -> list[Decided]:
    return [Decided(ONE, commits, frozenset(at)) for commits in ends]


@pytest.mark.parametrize(
    ("decisions", "stories"),
    [
        (decided(COMMIT), {A: markers(COMMIT), B: markers(COMMIT)}),
        (decided(COMMIT, at=(A,)), {A: markers(COMMIT), B: []}),
        # Repeated after a crash, and added without a write.
        (decided(COMMIT), {A: markers(COMMIT) + markers(COMMIT, empty=True), B: markers(COMMIT)}),
        (decided(ABORT), {A: markers(ABORT, empty=True), B: markers(ABORT)}),
        (decided(ABORT, COMMIT), {A: markers(ABORT, COMMIT), B: markers(ABORT, COMMIT)}),
    ],
)
def test_consistent_files_are_accepted(
    decisions: list[Decided], stories: dict[Place, list[WrittenMarker]]
) -> None:
    check_agreement(Decisions(decisions, {}), _stories(stories))


@pytest.mark.parametrize(
    ("decisions", "stories", "complaint"),
    [
        (decided(COMMIT), {A: markers(COMMIT), B: []}, "decided without a marker"),
        (decided(COMMIT), {A: markers(COMMIT), B: markers(ABORT)}, "but decided was"),
        (decided(COMMIT), {A: markers(COMMIT, ABORT), B: markers(COMMIT)}, "but decided was"),
        (decided(COMMIT), {A: markers(COMMIT, COMMIT), B: markers(COMMIT)}, "but decided was"),
        (
            decided(COMMIT, ABORT),
            {A: markers(ABORT, COMMIT), B: markers(COMMIT, ABORT)},
            "decided was",
        ),
        (decided(COMMIT), {A: markers(COMMIT), B: markers(COMMIT, of=TWO)}, "but decided was"),
        (
            decided(COMMIT),
            {A: markers(COMMIT) + markers(ABORT, empty=True), B: markers(COMMIT)},
            "but decided was",
        ),
        (
            decided(COMMIT, COMMIT, at=(A,)),
            {A: markers(COMMIT), B: []},
            "was decided, the markers are",
        ),
    ],
)
def test_contradictions_are_detected(
    decisions: list[Decided], stories: dict[Place, list[WrittenMarker]], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_agreement(Decisions(decisions, {}), _stories(stories))


def test_open_transactions_are_detected() -> None:
    open_ended = {A: PartitionStory(markers(COMMIT), {1: 4})}
    with pytest.raises(AssertionError, match="without an end"):
        check_agreement(Decisions(decided(COMMIT, at=(A,)), {}), open_ended)


def _stories(stories: dict[Place, list[WrittenMarker]]) -> dict[Place, PartitionStory]:
    return {place: PartitionStory(written, {}) for place, written in stories.items()}
