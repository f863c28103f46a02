"""Matches whole texts by following all ways through a pattern at once. What was found out about a
situation and a character is remembered, so that most characters cost one lookup.

Time is bounded by pattern times text; a pattern that still costs too much is given up.
"""

from collections.abc import Iterable
from typing import NamedTuple

from moldau.core.patterns.characters import LINE_END, WORD, CharTest
from moldau.core.patterns.syntax import (
    Between,
    Character,
    Choice,
    Node,
    PatternError,
    Place,
    Repeat,
    Sequence,
    parse_pattern,
)

STEPS_MAX = 5_000
"""Of a compiled pattern."""
PARTS_MAX = 10 * STEPS_MAX
"""Repetitions counted as often as they say."""
SITUATIONS_MAX = 2_000
"""Remembered; then everything is forgotten and learnt again."""
WORK_MAX = 2_000_000
"""Steps that one pattern may take for all its texts: about a second."""


class PatternTooCostlyError(PatternError):
    """It would keep the node busy for too long."""


class _Read(NamedTuple):
    """Goes on if the next character passes."""

    test: CharTest
    then: int


class _Fork(NamedTuple):
    ways: tuple[int, ...]


class _Check(NamedTuple):
    place: Place
    then: int


class _End(NamedTuple):
    pass


_Step = _Read | _Fork | _Check | _End
_END = 0


class _Program:
    """Steps that name their successors; built from the end."""

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
        # Repetitions of nothing need no steps, but time.
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise PatternError(f"it has more than {PARTS_MAX} parts")
        match node:
            case Character(test):
                return self._emit(_Read(test, then))
            case Between(place):
                return self._emit(_Check(place, then))
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


class _Situation:
    """Where all ways have got to, and behind which character."""

    __slots__ = ("is_end", "known", "previous", "steps")

    def __init__(self, steps: frozenset[int], previous: str) -> None:
        self.steps = steps
        self.previous = previous
        self.known: dict[str, _Situation] = {}
        self.is_end: bool | None = None


class Pattern:
    """Raises PatternError if the text is no pattern, and while matching if it costs too much."""

    def __init__(self, text: str) -> None:
        program = _Program(parse_pattern(text))
        self._steps = program.steps
        self._start = frozenset({program.start})
        self._looks_back = any(isinstance(step, _Check) for step in program.steps)
        self._situations: dict[tuple[frozenset[int], str], _Situation] = {}
        self._work = 0

    def matches(self, text: str) -> bool:
        """The whole text."""
        situation = self._situation(self._start, "")
        for character in text:
            following = situation.known.get(character)
            if following is None:
                following = self._step(situation, character)
            if not following.steps:
                return False
            situation = following
        if situation.is_end is None:
            situation.is_end = _END in self._reached(situation, "")
        return situation.is_end

    def _situation(self, steps: frozenset[int], previous: str) -> _Situation:
        # Only what checks places needs to know what was before; others share more.
        place = steps, _kind(previous) if self._looks_back else ""
        found = self._situations.get(place)
        if found is None:
            if len(self._situations) >= SITUATIONS_MAX:
                self._situations.clear()
            found = self._situations[place] = _Situation(steps, previous)
        return found

    def _step(self, situation: _Situation, character: str) -> _Situation:
        steps = frozenset(
            step.then
            for number in self._reached(situation, character)
            if isinstance(step := self._steps[number], _Read) and step.test(character)
        )
        following = self._situation(steps, character)
        if len(situation.known) < SITUATIONS_MAX:
            situation.known[character] = following
        return following

    def _reached(self, situation: _Situation, following: str) -> Iterable[int]:
        """Without reading anything more."""
        reached = set(situation.steps)
        waiting = list(situation.steps)
        while waiting:
            step = self._steps[waiting.pop()]
            ways: tuple[int, ...] = ()
            if isinstance(step, _Fork):
                ways = step.ways
            elif isinstance(step, _Check) and _holds(step.place, situation.previous, following):
                ways = (step.then,)
            for way in ways:
                if way not in reached:
                    reached.add(way)
                    waiting.append(way)
        self._work += 1 + len(reached)
        if self._work > WORK_MAX:
            raise PatternTooCostlyError("it costs too much")
        return reached


def _kind(character: str) -> str:
    """All that a place between characters can tell."""
    if not character or character == LINE_END:
        return character
    return "w" if character in WORD else "-"


def _holds(place: Place, previous: str, following: str) -> bool:
    match place:
        case Place.TEXT_START:
            return not previous
        case Place.TEXT_END:
            return not following
        case Place.LINE_START:
            return not previous or previous == LINE_END
        case Place.LINE_END:
            return not following or following == LINE_END
        case Place.WORD_EDGE:
            return (previous in WORD) != (following in WORD)
        case Place.NO_WORD_EDGE:
            return (previous in WORD) == (following in WORD)
