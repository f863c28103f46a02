"""A frozen class behaves as a frozen dataclass with slots does."""

import copy
import pickle
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from moldau.frozen import frozen


@frozen
class Place:
    """Where."""

    topic: str
    partition: int = 0
    tags: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"{self.topic}-{self.partition}"


@frozen(kw_only=True)
class Limits:
    low: int = 0
    high: int

    def __post_init__(self) -> None:
        assert self.low <= self.high


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: tuple[int, ...] = ()


OursPoint: Any = frozen(type("Point", (), {"__annotations__": Point.__annotations__, "y": ()}))


def test_fields_defaults_and_factories() -> None:
    one, other = Place("a"), Place("a")
    assert (one.topic, one.partition, one.tags) == ("a", 0, [])
    assert one.tags is not other.tags
    assert one.label == "a-0"
    assert Limits(high=3).low == 0


def test_wrong_arguments_are_refused() -> None:
    make: Any = Limits
    with pytest.raises(TypeError):
        make(1, 2)
    with pytest.raises(TypeError):
        make(low=1)
    with pytest.raises(TypeError):
        make(high=1, middle=1)
    with pytest.raises(AssertionError):
        Limits(low=2, high=1)


def test_nothing_can_be_changed() -> None:
    place = Place("a")
    with pytest.raises(AttributeError, match="Place is frozen: topic"):
        place.topic = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del place.topic
    with pytest.raises(AttributeError):
        place.unknown = 1  # type: ignore[attr-defined]
    assert not hasattr(place, "__dict__")


def test_equal_by_value_and_type() -> None:
    assert Place("a", 1) == Place("a", 1)
    assert Place("a", 1) != Place("a", 2)
    other: Any = Point(0)
    assert Limits(high=1) != other
    assert hash(Limits(high=1)) == hash(Limits(high=1))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Place("a"))


def test_copies_and_changed_copies() -> None:
    place = Place("a", 1, ["x"])
    assert replace(place, partition=2) == Place("a", 2, ["x"])
    assert copy.deepcopy(place) == pickle.loads(pickle.dumps(place)) == place
    assert copy.deepcopy(place).tags is not place.tags


def test_it_can_be_matched() -> None:
    match Place("a", 7):
        case Place("a", partition):
            assert partition == 7
        case _:
            pytest.fail("the pattern does not match")


def test_it_reads_as_a_dataclass_does() -> None:
    ours, theirs = OursPoint, cast("Any", Point)
    assert repr(ours(1, (2,))) == repr(theirs(1, (2,)))
    assert ours.__match_args__ == theirs.__match_args__
    assert (ours.__slots__, ours.__module__) == (theirs.__slots__, theirs.__module__)
    assert Place.__doc__ == "Where."


@frozen
class Nothing:
    pass


def test_it_may_have_no_fields() -> None:
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert repr(Nothing()) == "Nothing()"
