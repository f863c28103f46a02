"""Offsets in Spark's format."""

import pytest

from moldau.core.spark.errors import OptionError
from moldau.core.spark.offset_json import (
    QueryOffsets,
    check_covers,
    parse_assignment,
    parse_numbers,
    read_query_offsets,
    write_query_offsets,
)
from moldau.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_offsets_of_several_topics_are_read() -> None:
    text = '{"a": {"0": 23, "1": -2}, "b": {"0": -1}}'
    assert parse_numbers(text, "startingOffsets") == {A0: 23, A1: -2, B0: -1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "at character 2"),
        ("[]", "it is []"),
        ('{"a": 5}', "topic 'a' has 5"),
        ('{"a": {"x": 5}}', "'x' of topic 'a' is not a partition"),
        ('{"a": {"0": "5"}}', 'a-0 has "5"'),
        ('{"a": {"0": -3}}', "a-0 has -3"),
        ('{"a": {"0": true}}', "a-0 has true"),
    ],
)
def test_wrong_json_is_one_line_that_names_the_option(text: str, message: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets") as caught:
        parse_numbers(text, "startingOffsets")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_times_are_not_negative() -> None:
    with pytest.raises(OptionError, match="from 0"):
        parse_numbers('{"a": {"0": -1}}', "startingOffsetsByTimestamp", least=0)


def test_an_assignment_is_read() -> None:
    assert parse_assignment('{"a": [0, 1], "b": [0]}') == {A0, A1, B0}


@pytest.mark.parametrize("text", ["{", "{}", '{"a": []}', '{"a": [-1]}', '{"a": "0"}', "[1]"])
def test_a_wrong_assignment_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="assign must be JSON"):
        parse_assignment(text)


def test_a_querys_position_survives_a_round_trip_with_topic_ids() -> None:
    position = QueryOffsets({A0: 5, A1: 7, B0: 0}, {"a": "x" * 22})
    stored = write_query_offsets(position)
    assert stored["a"] == {"0": 5, "1": 7}
    assert read_query_offsets(stored) == position


def test_the_end_of_a_first_batch_contains_its_start() -> None:
    position = QueryOffsets({A0: 5}, {"a": "x" * 22}, {A0: 3})
    stored = write_query_offsets(position)
    assert stored["a"] == {"0": 5}
    assert read_query_offsets(stored) == position


def test_positions_of_sparks_own_source_are_read() -> None:
    assert read_query_offsets({"a": {"0": 5}}) == QueryOffsets({A0: 5}, {})


def test_explicit_offsets_name_exactly_what_is_read() -> None:
    check_covers("startingOffsets", {A0, A1}, {A0, A1})
    with pytest.raises(OptionError, match="does not name a-1"):
        check_covers("startingOffsets", {A0}, {A0, A1})
    with pytest.raises(OptionError, match="names b-0, which is not read"):
        check_covers("startingOffsets", {A0, B0}, {A0})
