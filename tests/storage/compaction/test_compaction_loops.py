"""The loops of compaction: compiled loops and their twins agree, on sound records and on any other
input.
"""

import random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.errors import KafkaError
from moldau.storage.compaction import _compaction_twin as twin

compiled: ModuleType = pytest.importorskip("moldau.storage.compaction._compaction")
BOTH = [twin, compiled]
HASH_KEY = bytes(range(16))

Item = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def offset_map(module: ModuleType, capacity: int = 1000) -> Any:
    memory_bytes = (capacity * 10 // 9 + 2) * 24
    return module.OffsetMap(memory_bytes=memory_bytes, load_factor=0.9, hash_key=HASH_KEY)


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def encoded(items: list[Item]) -> bytes:
    """A second implementation, so that the loops are not tested against themselves."""
    pieces = []
    for delta, timestamp, key, value, headers in items:
        body = b"\0" + varint(timestamp) + varint(delta) + sized(key) + sized(value)
        body += varint(len(headers))
        body += b"".join(sized(name.encode()) + sized(content) for name, content in headers)
        pieces.append(sized(body))
    return b"".join(pieces)


def records_strategy() -> st.SearchStrategy[list[Item]]:
    keys = st.one_of(st.none(), st.binary(max_size=3), st.sampled_from([b"a", b"b", b"x" * 200]))
    values = st.one_of(st.none(), st.binary(max_size=20))
    headers = st.sampled_from([(), (("h", b"1"),), (("n", None), ("", b""))])
    item = st.tuples(st.integers(-5, 10**12), keys, values, headers)

    def numbered(drawn: list[tuple[Any, ...]]) -> list[Item]:
        return [(2 * delta, *rest) for delta, rest in enumerate(drawn)]

    return st.lists(item, max_size=30).map(numbered)


@settings(max_examples=200, deadline=None)
@given(records_strategy(), records_strategy(), st.integers(0, 150), st.booleans())
def test_loop_and_twin_keep_the_same_records(
    earlier: list[Item], later: list[Item], start_offset: int, keep_tombstones: bool
) -> None:
    first, second = encoded(earlier), encoded(later)
    answers = []
    for module in BOTH:
        known = offset_map(module, 12)
        full = module.index_records(known, first, len(earlier), 0, start_offset)
        full = full or module.index_records(known, second, len(later), 100, start_offset)
        kept = [
            module.filter_records(known, first, len(earlier), 0, keep_tombstones),
            module.filter_records(known, second, len(later), 100, keep_tombstones),
        ]
        answers.append((full, len(known), known.latest_offset, kept))
    assert answers[0] == answers[1]


@settings(max_examples=200, deadline=None)
@given(records_strategy(), st.integers(0, 100))
def test_a_record_stays_if_it_is_the_last_of_its_key_or_was_not_indexed(
    items: list[Item], start_offset: int
) -> None:
    content = encoded(items)
    known = offset_map(compiled)
    compiled.index_records(known, content, len(items), 0, start_offset)
    last = {
        key: delta for delta, _, key, _, _ in items if key is not None and delta >= start_offset
    }
    expected = [
        item
        for item in items
        if item[0] > known.latest_offset
        or (item[2] is not None and item[0] >= last.get(item[2], -1))
    ]

    count, kept, tombstones, delta_max = compiled.filter_records(
        known, content, len(items), 0, True
    )

    body = content if kept is None else kept
    assert count == len(expected)
    assert (kept is None) == (expected == items)
    assert body == encoded(expected)
    assert tombstones == any(item[3] is None for item in expected)
    assert delta_max == max((item[1] for item in expected), default=0)


@settings(max_examples=100, deadline=None)
@given(records_strategy(), st.integers(-(2**63), 2**63 - 1))
def test_loop_and_twin_rebase_alike_and_only_the_timestamps_change(
    items: list[Item], shift_ms: int
) -> None:
    content = encoded(items)
    results = [module.rebase_timestamps(content, len(items), shift_ms) for module in BOTH]
    assert results[0] == results[1]
    shifted: list[Item] = [
        (delta, (stamp + shift_ms + 2**63) % 2**64 - 2**63, key, value, headers)
        for delta, stamp, key, value, headers in items
    ]
    assert results[0] == encoded(shifted)


def outcome(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except KafkaError as error:
        return error.code


def test_damaged_records_are_refused_alike() -> None:
    """Six thousand mutations of a sound body: the same result or the same error."""
    rng = random.Random(7)
    sound = encoded(
        [(i, i, b"key-%d" % (i % 3), b"v" * i if i % 4 else None, ()) for i in range(8)]
    )
    refused = 0
    for _ in range(6_000):
        content = bytearray(sound)
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(len(content))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, 14, 200])
        body = bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        count = rng.choice([8, 8, 8, 7, 9, 0])
        answers = []
        for module in BOTH:
            known = offset_map(module)
            answers.append(
                (
                    outcome(module.index_records, known, body, count, 0, 0),
                    known.latest_offset,
                    outcome(module.filter_records, known, body, count, 0, False),
                    outcome(module.rebase_timestamps, body, count, -5),
                )
            )
        assert answers[0] == answers[1], (body, count)
        refused += not isinstance(answers[0][2], tuple)
    assert 600 < refused < 6_000


@pytest.mark.parametrize("module", BOTH)
def test_the_map_holds_no_more_keys_than_its_memory_allows(module: ModuleType) -> None:
    known = module.OffsetMap(memory_bytes=24 * 100, load_factor=0.9, hash_key=HASH_KEY)
    assert known.capacity == 90
    items: list[Item] = [(i, 0, b"%d" % i, b"v", ()) for i in range(200)]
    assert module.index_records(known, encoded(items), 200, 0, 0) is True
    assert len(known) == 90
    assert known.latest_offset == 89
    assert [known.get(b"%d" % i) for i in (0, 89, 90)] == [0, 89, -1]
    known.clear()
    assert len(known) == 0
    assert known.get(b"0") == -1


@pytest.mark.parametrize("module", BOTH)
def test_a_full_table_still_finds_every_key(module: ModuleType) -> None:
    known = module.OffsetMap(memory_bytes=24 * 5000, load_factor=0.99, hash_key=HASH_KEY)
    items: list[Item] = [(i, 0, b"key-%d" % i, b"", ()) for i in range(known.capacity)]
    assert module.index_records(known, encoded(items), len(items), 10, 0) is False
    assert all(known.get(b"key-%d" % i) == 10 + i for i in range(known.capacity))
    assert known.get(b"no such key") == -1


def test_the_compiled_hash_is_siphash() -> None:
    """Keys are kept apart by the collision resistance of SipHash-2-4-128, and nothing else would
    show a mistake in a round. The vectors are those of its authors: key 00..0f, messages of n bytes
    00, 01, ...
    """
    vectors = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        2: "8177228da4a45dc7fca38bdef60affe4",
    }
    for length, expected in vectors.items():
        assert compiled.key_hash(bytes(range(length)), HASH_KEY).hex() == expected


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize("memory_bytes", [0, 23, 24])
def test_a_map_without_room_for_a_key_is_refused(module: ModuleType, memory_bytes: int) -> None:
    with pytest.raises(ValueError, match="too few"):
        module.OffsetMap(memory_bytes=memory_bytes, load_factor=0.9, hash_key=HASH_KEY)


@pytest.mark.parametrize("module", BOTH)
def test_the_hash_key_has_sixteen_bytes(module: ModuleType) -> None:
    with pytest.raises(ValueError, match="sixteen"):
        module.OffsetMap(memory_bytes=1000, load_factor=0.9, hash_key=b"short")
