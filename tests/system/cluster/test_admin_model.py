"""Histories of admin calls that are linearizable, and those that would show a fault."""

import pytest
from support.linearizability import NEVER, UNKNOWN, Operation, violations
from system.cluster.admin_model import (
    ABSENT,
    DONE,
    EXISTS,
    MISSING,
    NOT_AN_INCREASE,
    Call,
    Configure,
    CountPartitions,
    Create,
    Delete,
    Grow,
    ReadSetting,
    step,
)

LINEARIZABLE = {
    "a life": [
        (Create(2, "a"), DONE),
        (Grow(4), DONE),
        (CountPartitions(), "4"),
        (Configure("b"), DONE),
        (ReadSetting(), "b"),
        (Delete(), DONE),
        (CountPartitions(), MISSING),
    ],
    "refusals": [
        (Delete(), MISSING),
        (Grow(2), MISSING),
        (Configure("a"), MISSING),
        (ReadSetting(), MISSING),
        (Create(2, "a"), DONE),
        (Create(3, "b"), EXISTS),
        (Grow(2), NOT_AN_INCREASE),
        (ReadSetting(), "a"),
    ],
    "an unknown call that happened": [
        (Create(2, "a"), UNKNOWN),
        (Create(3, "b"), EXISTS),
        (CountPartitions(), "2"),
    ],
    "an unknown call that did not happen": [
        (Create(2, "a"), UNKNOWN),
        (Create(3, "b"), DONE),
        (CountPartitions(), "3"),
    ],
}
FAULTS = {
    "an acknowledged topic is lost": [(Create(2, "a"), DONE), (CountPartitions(), MISSING)],
    "a deleted topic is back": [
        (Create(2, "a"), DONE),
        (Delete(), DONE),
        (CountPartitions(), "2"),
    ],
    "an acknowledged setting is lost": [
        (Create(2, "a"), DONE),
        (Configure("b"), DONE),
        (ReadSetting(), "a"),
    ],
    "a topic is created twice": [(Create(2, "a"), DONE), (Create(3, "b"), DONE)],
    "partitions vanish": [
        (Create(2, "a"), DONE),
        (Grow(4), DONE),
        (Grow(3), DONE),
    ],
    "an unknown call happened twice": [
        (Create(2, "a"), UNKNOWN),
        (Delete(), DONE),
        (CountPartitions(), MISSING),
        (ReadSetting(), "a"),
        (Delete(), DONE),
        (CountPartitions(), "2"),
    ],
}
Calls = list[tuple[Call, str | None]]


def history(calls: Calls) -> list[Operation]:
    """One after the other."""
    return [
        Operation("t", "p", call, n, NEVER if outcome is UNKNOWN else n + 0.5, outcome)
        for n, (call, outcome) in enumerate(calls)
    ]


@pytest.mark.parametrize("calls", LINEARIZABLE.values(), ids=LINEARIZABLE)
def test_right_answers_are_accepted(calls: Calls) -> None:
    assert violations(history(calls), ABSENT, step) == []


@pytest.mark.parametrize("calls", FAULTS.values(), ids=FAULTS)
def test_faults_are_found(calls: Calls) -> None:
    assert len(violations(history(calls), ABSENT, step)) == 1
