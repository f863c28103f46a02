"""A checker of linearizability: each operation of a concurrent history must have happened at one
moment between its invocation and its response, such that all responses are right. Pure.

Wing and Gong's search, made in the order of the responses as Lowe describes: it keeps every state
that the object may be in at a moment, together with the operations under way that have happened
already. Each key of a history is an object of its own.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

NEVER = math.inf
UNKNOWN = None
"""The outcome of an operation that may or may not have happened."""
_CONFIGURATIONS_MAX = 100_000

State: TypeAlias = Hashable
Step: TypeAlias = Callable[[Any, Any, Any], Any]
"""Of a state, a call and its outcome: the next state, or IMPOSSIBLE if the call cannot have that
outcome in that state. For an UNKNOWN outcome, the state after the call has happened.
"""


class _Impossible:
    """A class of its own, so that None may be a state."""


IMPOSSIBLE = _Impossible()


@dataclass(frozen=True, slots=True)
class Operation:
    key: str
    process: str
    call: Any
    invoked: float
    returned: float = NEVER
    """An operation without a response may happen at any later time, or never."""
    outcome: Any = UNKNOWN


@dataclass(frozen=True, slots=True)
class Violation:
    """The first response that no order of the operations explains."""

    operation: Operation
    states: frozenset[State]
    """Before it, the object may have been in these."""
    under_way: tuple[Operation, ...]

    def __str__(self) -> str:
        lines = [f"key {self.operation.key}: impossible: {_shown(self.operation)}"]
        lines += [f"  possible state before: {state}" for state in self.states]
        lines += [f"  at the same time: {_shown(each)}" for each in self.under_way]
        return "\n".join(lines)


class TooManyStatesError(Exception):
    """The history is too concurrent to be checked."""


def violations(history: Iterable[Operation], first: State, step: Step) -> list[Violation]:
    """One for each key that is not linearizable. `first` is the state of every key."""
    by_key = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    found = (_violation(operations, first, step) for operations in by_key.values())
    return [each for each in found if each is not None]


_Happened: TypeAlias = frozenset[int]
"""Numbers of operations under way."""
_Configuration: TypeAlias = tuple[State, _Happened]


def _violation(operations: list[Operation], first: State, step: Step) -> Violation | None:
    search = _Search(operations, first, step)
    for number, is_return in _events(operations):
        if not is_return:
            search.under_way.add(number)
            continue
        before = search.states
        search.complete(number)
        if not search.configurations:
            concurrent = sorted(search.under_way - {number})
            return Violation(operations[number], before, tuple(operations[n] for n in concurrent))
    return None


def _events(operations: list[Operation]) -> Iterator[tuple[int, bool]]:
    """Invocations and returns in the order of time. Of those at the same moment, invocations come
    first: the operations overlap.
    """
    events = []
    for number, operation in enumerate(operations):
        assert operation.invoked <= operation.returned, operation
        events.append((operation.invoked, False, number))
        if operation.returned != NEVER:
            events.append((operation.returned, True, number))
    for _, is_return, number in sorted(events):
        yield number, is_return


class _Search:
    def __init__(self, operations: list[Operation], first: State, step: Step) -> None:
        self._operations = operations
        self._step = step
        self.under_way: set[int] = set()
        self.configurations: set[_Configuration] = {(first, frozenset())}

    @property
    def states(self) -> frozenset[State]:
        return frozenset(state for state, _ in self.configurations)

    def complete(self, number: int) -> None:
        """Keeps what is possible if this operation has happened by now; one with an unknown outcome
        need not have.
        """
        need_not = self._operations[number].outcome is UNKNOWN
        kept = _Smallest(self._is_known)
        for state, happened in self._reachable():
            if need_not or number in happened:
                kept.add(state, happened - {number})
        self.under_way.remove(number)
        self.configurations = set(kept)

    def _reachable(self) -> "_Smallest":
        """By any of the operations under way, in the order of how many have happened."""
        found = _Smallest(self._is_known)
        level = {each for each in self.configurations if found.add(*each)}
        while level:
            following = {after for each in level for after in self._next(*each)}
            level = {each for each in following if found.add(*each)}
        return found

    def _is_known(self, number: int) -> bool:
        return self._operations[number].outcome is not UNKNOWN

    def _next(self, state: State, happened: _Happened) -> Iterator[_Configuration]:
        for number in self.under_way - happened:
            operation = self._operations[number]
            after = self._step(state, operation.call, operation.outcome)
            is_unknown = operation.outcome is UNKNOWN
            # One that changes nothing need not happen, if its outcome is unknown.
            if after is not IMPOSSIBLE and not (is_unknown and after == state):
                yield after, happened | {number}


class _Smallest:
    """Configurations, without those that are possible with fewer operations of unknown outcome,
    too: the others may still happen, or never.
    """

    def __init__(self, is_known: Callable[[int], bool]) -> None:
        self._is_known = is_known
        self._unknown: dict[_Configuration, list[_Happened]] = defaultdict(list)
        self._count = 0

    def add(self, state: State, happened: _Happened) -> bool:
        """Whether it is new."""
        known = frozenset(filter(self._is_known, happened))
        unknown = happened - known
        others = self._unknown[state, known]
        if any(each <= unknown for each in others):
            return False
        kept = [each for each in others if not unknown <= each]
        self._count += 1 + len(kept) - len(others)
        if self._count > _CONFIGURATIONS_MAX:
            raise TooManyStatesError(f"more than {_CONFIGURATIONS_MAX} configurations")
        others[:] = [*kept, unknown]
        return True

    def __iter__(self) -> Iterator[_Configuration]:
        for (state, known), sets in self._unknown.items():
            for unknown in sets:
                yield state, known | unknown


def _shown(operation: Operation) -> str:
    outcome = "unknown" if operation.outcome is UNKNOWN else operation.outcome
    return (
        f"{operation.process} {operation.call} -> {outcome}"
        f" from {operation.invoked:.3f} to {operation.returned:.3f}"
    )
