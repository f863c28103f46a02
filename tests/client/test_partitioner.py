"""Keys go where every other client would put them."""

from collections import Counter

from aiokafka.partitioner import murmur2 as aiokafkas
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_pythons

from moldau.client.partitioner import StickyTurns, murmur2, partition_of_key


@settings(deadline=None)
@given(st.binary(max_size=64))
def test_the_hash_is_that_of_other_clients(key: bytes) -> None:
    assert murmur2(key) == kafka_pythons(key) & 0xFFFF_FFFF
    assert murmur2(key) == aiokafkas(key) & 0xFFFF_FFFF


@settings(deadline=None)
@given(st.binary(max_size=16), st.integers(1, 50))
def test_a_key_has_one_partition(key: bytes, count: int) -> None:
    assert 0 <= partition_of_key(key, count) < count


def test_records_without_keys_fill_one_partition_after_the_other() -> None:
    turns = StickyTurns(3, fill_bytes=100)
    chosen = [turns.next(40) for _ in range(12)]
    assert chosen == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]


def test_records_larger_than_the_fill_take_turns() -> None:
    turns = StickyTurns(4, fill_bytes=10)
    assert Counter(turns.next(1000) for _ in range(40)) == dict.fromkeys(range(4), 10)
