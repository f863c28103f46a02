"""All clients and brokers must map a key to the same partition, with Java's arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.coordinator import _placement_twin
from moldau.core.coordinator.placement import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("test-group", 627841412),
        ("console-consumer-12345", 158455506),
        ("grüße", 98768023),
        ("😀", 1772899),
        ("polygenelubricants", -2147483648),
    ],
)
def test_hashes_agree_with_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected == _placement_twin.java_hash(text)


@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_the_compiled_loop_agrees_with_its_twin(text: str) -> None:
    compiled = pytest.importorskip("moldau.core.coordinator._placement")
    assert compiled.java_hash(text) == _placement_twin.java_hash(text)


def test_the_smallest_integer_has_no_absolute_value_and_counts_as_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_partitions_are_within_the_topic() -> None:
    assert {partition_for(f"group-{n}", 50) for n in range(2_000)} == set(range(50))
