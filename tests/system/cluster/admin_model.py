"""A topic as an object for the linearizability checker: the calls that change and read it, and the
outcomes that each has in a state. Pure.
"""

from typing import Any, NamedTuple, TypeAlias

from support.linearizability import IMPOSSIBLE, UNKNOWN

DONE, EXISTS, MISSING, NOT_AN_INCREASE = "done", "exists", "missing", "not an increase"


class Topic(NamedTuple):
    partitions: int
    setting: str


ABSENT = None
State: TypeAlias = Topic | None


class Create(NamedTuple):
    partitions: int
    setting: str


class Delete(NamedTuple):
    pass


class Grow(NamedTuple):
    partitions: int


class Configure(NamedTuple):
    setting: str


class CountPartitions(NamedTuple):
    pass


class ReadSetting(NamedTuple):
    pass


Call: TypeAlias = Create | Delete | Grow | Configure | CountPartitions | ReadSetting


def step(state: State, call: Call, outcome: Any) -> Any:
    """A `Step` of the checker. Numbers of partitions are outcomes as text."""
    right, after = happen(state, call)
    return after if outcome in {right, UNKNOWN} else IMPOSSIBLE


def happen(state: State, call: Call) -> tuple[str, State]:
    """Outcome and next state."""
    if isinstance(call, Create):
        return (EXISTS, state) if state is not ABSENT else (DONE, Topic(*call))
    if state is ABSENT:
        return MISSING, ABSENT
    match call:
        case Delete():
            return DONE, ABSENT
        case Grow(partitions) if partitions <= state.partitions:
            return NOT_AN_INCREASE, state
        case Grow(partitions):
            return DONE, state._replace(partitions=partitions)
        case Configure(setting):
            return DONE, state._replace(setting=setting)
        case CountPartitions():
            return str(state.partitions), state
        case ReadSetting():
            return state.setting, state
