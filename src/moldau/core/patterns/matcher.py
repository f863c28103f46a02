"""Matches whole texts by following all paths through a pattern at once (an NFA). Transitions are
cached as states of a DFA, so that most characters cost one lookup.

The time is bounded by pattern times text; matching stops if that is still too much.
"""

from collections.abc import Iterable
from typing import NamedTuple

from moldau.core.patterns.characters import LINE_END, WORD, CharTest
from moldau.core.patterns.syntax import (
    Anchor,
    Between,
    Character,
    Choice,
    Node,
    PatternError,
    Repeat,
    Sequence,
    parse_pattern,
)

STEPS_MAX = 5_000
"""The most steps of a compiled pattern."""
PARTS_MAX = 10 * STEPS_MAX
"""The most parts of a pattern, with repetitions expanded."""
STATES_MAX = 2_000
"""The most cached states; a full cache is cleared."""
WORK_MAX = 2_000_000
"""Steps that one pattern may take for all of its texts, about a second."""


class PatternTooCostlyError(PatternError):
    """Matching would keep the node busy for too long."""


class _Read(NamedTuple):
    """Consumes the next character if it passes the test."""

    test: CharTest
    then: int


class _Fork(NamedTuple):
    ways: tuple[int, ...]


class _Check(NamedTuple):
    anchor: Anchor
    then: int


class _End(NamedTuple):
    pass


_Step = _Read | _Fork | _Check | _End
_END = 0


class _Program:
    """Steps with the numbers of their successors; built from the end."""

    def __init__(self, pattern: Node) -> None:
        self.steps: list[_Step] = [_End()]
        self._parts = 0
        self.start = self._add(pattern, _END)

    def _emit(self, step: _Step) -> int:
        if len(self.steps) >= STEPS_MAX:
            raise PatternError(f"it has more than {STEPS_MAX} steps")
        self.steps.append(step)
        return len(self.steps) - 1

    def _add(self, node: Node, then: int) -> int:
        # Empty repetitions add no steps, but cost time.
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise PatternError(f"it has more than {PARTS_MAX} parts")
        match node:
            case Character(test):
                return self._emit(_Read(test, then))
            case Between(anchor):
                return self._emit(_Check(anchor, then))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._add(part, then)
                return then
            case Choice(ways):
                return self._emit(_Fork(tuple(self._add(way, then) for way in ways)))
            case Repeat(part, least, most):
                return self._repeat(part, least, most, then)

    def _repeat(self, part: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self._emit(_Fork(()))
            self.steps[loop] = _Fork((self._add(part, loop), then))
            then = loop
        else:
            end = then
            for _ in range(most - least):
                then = self._emit(_Fork((self._add(part, then), end)))
        for _ in range(least):
            then = self._add(part, then)
        return then


class _State:
    """The steps that are reached on all paths, and the character before them."""

    __slots__ = ("is_end", "known", "previous", "steps")

    def __init__(self, steps: frozenset[int], previous: str) -> None:
        self.steps = steps
        self.previous = previous
        self.known: dict[str, _State] = {}
        self.is_end: bool | None = None


class Pattern:
    """Raises PatternError for an invalid pattern, and when matching takes too many steps."""

    def __init__(self, text: str) -> None:
        program = _Program(parse_pattern(text))
        self._steps = program.steps
        self._start = frozenset({program.start})
        self._looks_back = any(isinstance(step, _Check) for step in program.steps)
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self._work = 0

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        state = self._state(self._start, "")
        for character in text:
            following = state.known.get(character)
            if following is None:
                following = self._step(state, character)
            if not following.steps:
                return False
            state = following
        if state.is_end is None:
            state.is_end = _END in self._reached(state, "")
        return state.is_end

    def _state(self, steps: frozenset[int], previous: str) -> _State:
        # Only patterns with anchors depend on the previous character; others share states.
        key = steps, _kind(previous) if self._looks_back else ""
        cached = self._states.get(key)
        if cached is None:
            if len(self._states) >= STATES_MAX:
                self._states.clear()
            cached = self._states[key] = _State(steps, previous)
        return cached

    def _step(self, state: _State, character: str) -> _State:
        steps = frozenset(
            step.then
            for number in self._reached(state, character)
            if isinstance(step := self._steps[number], _Read) and step.test(character)
        )
        following = self._state(steps, character)
        if len(state.known) < STATES_MAX:
            state.known[character] = following
        return following

    def _reached(self, state: _State, following: str) -> Iterable[int]:
        """All steps that are reachable without consuming a character."""
        reached = set(state.steps)
        waiting = list(state.steps)
        while waiting:
            step = self._steps[waiting.pop()]
            ways: tuple[int, ...] = ()
            if isinstance(step, _Fork):
                ways = step.ways
            elif isinstance(step, _Check) and _holds(step.anchor, state.previous, following):
                ways = (step.then,)
            for way in ways:
                if way not in reached:
                    reached.add(way)
                    waiting.append(way)
        self._work += 1 + len(reached)
        if self._work > WORK_MAX:
            raise PatternTooCostlyError("matching it takes too many steps")
        return reached


def _kind(character: str) -> str:
    """The part of a character that anchors depend on."""
    if not character or character == LINE_END:
        return character
    return "w" if character in WORD else "-"


def _holds(anchor: Anchor, previous: str, following: str) -> bool:
    match anchor:
        case Anchor.TEXT_START:
            return not previous
        case Anchor.TEXT_END:
            return not following
        case Anchor.LINE_START:
            return not previous or previous == LINE_END
        case Anchor.LINE_END:
            return not following or following == LINE_END
        case Anchor.WORD_EDGE:
            return (previous in WORD) != (following in WORD)
        case Anchor.NOT_WORD_EDGE:
            return (previous in WORD) == (following in WORD)
