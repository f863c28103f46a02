"""The checker accepts exactly the histories that some order explains."""

import itertools
import random
from typing import Any

import pytest
from support.linearizability import (
    IMPOSSIBLE,
    NEVER,
    UNKNOWN,
    Operation,
    TooManyStatesError,
    violations,
)

OK = "ok"


def register(state: Any, call: Any, outcome: Any) -> Any:
    """A value that is written, read, and exchanged for another if it is the expected one."""
    match call:
        case ("write", value):
            return value
        case ("read",):
            return state if outcome in {state, UNKNOWN} else IMPOSSIBLE
        case ("exchange", expected, value):
            is_right = outcome in {state == expected, UNKNOWN}
            after = value if state == expected else state
            return after if is_right else IMPOSSIBLE
        case _:
            raise AssertionError(call)


def write(value: str, start: float, end: float = NEVER, outcome: Any = OK) -> Operation:
    known = UNKNOWN if end == NEVER else outcome
    return Operation("k", "p", ("write", value), start, end, known)


def read(value: str, start: float, end: float) -> Operation:
    return Operation("k", "p", ("read",), start, end, value)


ACCEPTED = {
    "nothing": [],
    "one after the other": [write("a", 0, 1), read("a", 2, 3), write("b", 4, 5), read("b", 6, 7)],
    "a read during a write may be early": [write("a", 0, 9), read("", 1, 2), read("a", 3, 4)],
    "two writes in either order": [write("a", 0, 9), write("b", 0, 9), read("a", 10, 11)],
    "a read that returns what is written later than it began": [
        read("b", 0, 9),
        write("a", 1, 2),
        write("b", 3, 4),
    ],
    "an unknown write that never happens": [write("a", 0), read("", 1, 2), read("", 8, 9)],
    "an unknown write that happens late": [
        write("a", 0),
        read("", 1, 2),
        write("b", 3, 4),
        read("b", 5, 6),
        read("a", 7, 8),
    ],
    "an unknown write that has an end, and happens before it": [
        write("a", 0, 5, UNKNOWN),
        read("", 1, 2),
        read("a", 6, 7),
    ],
}
REFUSED = {
    "a lost write": [write("a", 0, 1), read("", 2, 3)],
    "an old value": [write("a", 0, 1), write("b", 2, 3), read("a", 4, 5)],
    "a value that was never written": [write("a", 0, 1), read("c", 0, 1)],
    "a value that comes and goes": [write("a", 0, 9), read("a", 1, 2), read("", 3, 4)],
    "readers that disagree about the order": [
        write("a", 0, 1),
        write("b", 0, 1),
        read("a", 2, 3),
        read("b", 4, 5),
    ],
    "a value from the future": [read("a", 0, 1), write("a", 2, 3)],
    "an unknown write that happens twice": [
        write("a", 0),
        read("a", 1, 2),
        write("b", 3, 4),
        read("a", 5, 6),
    ],
    "an unknown write that happens and is lost": [write("a", 0), read("a", 1, 2), read("", 3, 4)],
    "an unknown write that happens after its end": [
        write("a", 0, 5, UNKNOWN),
        read("", 6, 7),
        read("a", 8, 9),
    ],
}


@pytest.mark.parametrize("history", ACCEPTED.values(), ids=ACCEPTED)
def test_a_linearizable_history_is_accepted(history: list[Operation]) -> None:
    assert violations(history, "", register) == []


@pytest.mark.parametrize("history", REFUSED.values(), ids=REFUSED)
def test_another_history_is_refused(history: list[Operation]) -> None:
    assert len(violations(history, "", register)) == 1


def test_keys_are_independent_and_the_first_impossible_response_is_named() -> None:
    good = [Operation("good", "p", ("write", "a"), 0, 1, OK)]
    bad = [
        write("a", 0, 1),
        write("b", 2, 9),
        read("c", 3, 4),
        read("d", 5, 6),
    ]
    (found,) = violations(good + bad, "", register)
    assert found.operation == bad[2]
    assert found.states == {"a"}
    assert found.under_way == (bad[1],)
    assert "key k: impossible: p ('read',) -> c from 3.000 to 4.000" in str(found)


def test_long_histories_with_many_unknown_outcomes_are_checked() -> None:
    """Unknown writes stay under way for ever: the search must not try all their subsets."""
    history = []
    for n in range(0, 2000, 4):
        if n % 100 == 0:
            history.append(write(f"unknown-{n}", n))
        history += [write(f"v{n}", n, n + 1), read(f"v{n}", n + 2, n + 3)]
    assert violations(history, "", register) == []
    history.append(read("v0", 2000, 2001))
    assert len(violations(history, "", register)) == 1


def test_a_history_that_is_too_concurrent_is_not_called_good() -> None:
    crowd = [write(str(n), 0, 9) for n in range(30)]
    with pytest.raises(TooManyStatesError):
        violations(crowd, "", register)


def test_it_agrees_with_trying_every_order() -> None:
    accepted = 0
    for seed in range(3000):
        history = random_history(random.Random(seed))
        expected = has_an_order(history)
        assert (violations(history, "", register) == []) == expected, (seed, history)
        accepted += expected
    assert 300 < accepted < 2700


def random_history(chance: random.Random) -> list[Operation]:
    calls: list[tuple[Any, list[Any]]] = [
        (("write", "a"), [OK]),
        (("write", "b"), [OK]),
        (("exchange", "a", "b"), [True, False]),
        (("exchange", "b", "c"), [True, False]),
        (("read",), ["", "a", "b", "c"]),
        (("read",), ["a", "b"]),
    ]
    history = []
    for number in range(chance.randint(1, 5)):
        call, outcomes = chance.choice(calls)
        start = chance.randint(0, 10)
        end: float = start + chance.randint(1, 6)
        outcome = chance.choice(outcomes)
        if chance.random() < 0.3:
            outcome = UNKNOWN
            end = chance.choice([end, NEVER])
        history.append(Operation("k", str(number), call, start, end, outcome))
    return history


def has_an_order(history: list[Operation]) -> bool:
    known = [each for each in history if each.outcome is not UNKNOWN]
    unknown = [each for each in history if each.outcome is UNKNOWN]
    for count in range(len(unknown) + 1):
        for happened in itertools.combinations(unknown, count):
            if any(map(is_right, itertools.permutations([*known, *happened]))):
                return True
    return False


def is_right(order: tuple[Operation, ...]) -> bool:
    state: Any = ""
    for number, operation in enumerate(order):
        if any(later.returned < operation.invoked for later in order[number + 1 :]):
            return False
        state = register(state, operation.call, operation.outcome)
        if state is IMPOSSIBLE:
            return False
    return True
