"""Checks of the value of a setting that a topic obeys. Each check takes the value that should be in
force and fails with any other; it can be repeated on one topic.
"""

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

from config.live.live_node import LiveNode
from system.node.questions import EARLIEST, LATEST, delete_records, offset_at

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.records.compression import Compression

Check = Callable[[LiveNode, str, str], None]

HOUR_MS = 3_600_000
JITTERED = 6
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_fresh = count()
# Text that all codecs can compress, and better at a higher level.
_chance = random.Random(1)
WORDS = [bytes(_chance.choices(b"abcdefgh", k=_chance.randint(2, 7))) for _ in range(300)]
TEXT = b" ".join(_chance.choices(WORDS, k=20_000))


def fresh_key() -> bytes:
    return b"key-%d" % next(_fresh)


# Batches


def check_codec(node: LiveNode, topic: str, value: str) -> None:
    assert node.write(topic, b"a" * 500) == 0
    assert node.batches(topic)[-1].compression.name.lower() == value


def check_level(codec: Compression) -> Check:
    def check(node: LiveNode, topic: str, value: str) -> None:
        """The stored batch is as large as one that was compressed at this level."""
        assert node.write(topic, TEXT) == 0
        stored = node.batches(topic)[-1]
        record = Record(0, stored.base_timestamp, None, TEXT)
        options = BatchOptions(compression=codec, compression_level=int(value))
        assert stored.compression is codec
        assert stored.size_in_bytes == len(build_batch([record], options))

    return check


def check_batch_size(node: LiveNode, topic: str, value: str) -> None:
    allowed = int(value)
    assert node.write(topic, b"a" * (allowed - 100)) == ErrorCode.NONE
    assert node.write(topic, b"a" * allowed) == ErrorCode.MESSAGE_TOO_LARGE


def check_timestamp_type(node: LiveNode, topic: str, value: str) -> None:
    assert node.write(topic, b"a", after_ms=-5 * HOUR_MS) == 0
    (record,) = node.batches(topic)[-1].records()
    age_ms = node.now_ms - record.timestamp
    assert (age_ms >= 5 * HOUR_MS) == (value == "CreateTime")


def check_timestamps(direction: int) -> Check:
    def check(node: LiveNode, topic: str, value: str) -> None:
        bound_ms = int(value)
        assert node.write(topic, b"a", after_ms=direction * bound_ms // 2) == ErrorCode.NONE
        too_far = node.write(topic, b"a", after_ms=direction * bound_ms * 2)
        assert too_far == ErrorCode.INVALID_TIMESTAMP

    return check


def check_policy(node: LiveNode, topic: str, value: str) -> None:
    """Compacted topics require keys, and keep old records."""
    keyless = node.write(topic, b"a")
    assert keyless == (ErrorCode.INVALID_RECORD if value == "compact" else ErrorCode.NONE)
    assert node.write(topic, b"a", key=b"k") == 0
    end = offset_at(node.client, (topic, 0), LATEST)
    node.advance(30 * 24 * HOUR_MS)
    if value == "compact":
        node.assert_stays_false(lambda: offset_at(node.client, (topic, 0), EARLIEST) == end)
    else:
        node.advance_until(lambda: offset_at(node.client, (topic, 0), EARLIEST) == end)


# Segments and their indexes


def check_segment_size(node: LiveNode, topic: str, value: str) -> None:
    """A segment that is just full is not sealed; one more batch seals it."""
    node.advance(1000 * HOUR_MS)
    assert node.write(topic, b"a") == 0
    before = node.segments(topic)
    half = b"a" * (int(value) // 2 - 300)
    assert node.write(topic, half) == 0
    assert node.write(topic, half) == 0
    assert node.segments(topic) == before
    assert node.write(topic, b"a" * 600) == 0
    assert node.segments(topic) == before + 1


def check_segment_age(node: LiveNode, topic: str, value: str) -> None:
    """The first append after the age limit seals the segment. Earlier checks left a new segment."""
    assert node.write(topic, b"a") == 0
    before = node.segments(topic)
    node.advance(int(value) * 0.8)
    assert node.write(topic, b"a") == 0
    assert node.segments(topic) == before
    node.advance(int(value) * 0.3)
    assert node.write(topic, b"a") == 0
    assert node.segments(topic) == before + 1


def check_segment_jitter(node: LiveNode, topic: str, value: str) -> None:
    """After 99 of 100 hours, some of several partitions have sealed their segments if a random time
    is subtracted. It is drawn when a segment begins.
    """
    counts = []
    for pause_ms in (0, 200 * HOUR_MS, 99 * HOUR_MS):
        node.advance(pause_ms)
        for each in range(JITTERED):
            assert node.write(topic, b"a", partition=each) == 0
        counts.append([node.segments(topic, each) for each in range(JITTERED)])
    assert (counts[-1] != counts[-2]) == (int(value) > HOUR_MS)


def check_index_interval(node: LiveNode, topic: str, value: str) -> None:
    """Counts the index entries of a segment that begins and ends in this check."""
    node.advance(1000 * HOUR_MS)
    for _ in range(40):
        assert node.write(topic, b"a" * 1000) == 0
    node.advance(1000 * HOUR_MS)
    assert node.write(topic, b"a") == 0
    index = node.files("*.index", f"{topic}-0")[-2]
    batches_per_entry = int(value) // 1075 + 1
    assert index.stat().st_size // 8 == 39 // batches_per_entry


def check_index_size(node: LiveNode, topic: str, value: str) -> None:
    """Each batch has an index entry of 8 bytes; a full index seals the segment."""
    assert node.write(topic, b"a") == 0
    node.advance(1000 * HOUR_MS)
    assert node.write(topic, b"a") == 0
    before = node.segments(topic)
    for _ in range(40):
        assert node.write(topic, b"a") == 0
    assert (node.segments(topic) >= before + 2) == (int(value) < 40 * 8 // 2)


# Retention


def size_of(path: Path) -> int:
    """0 if a thread of the node has deleted the file since it was listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def check_retention_size(node: LiveNode, topic: str, value: str) -> None:
    """Needs segments of about 1000 bytes."""
    for _ in range(40):
        assert node.write(topic, b"a" * 400) == 0
    allowed = int(value)

    def size() -> int:
        return sum(size_of(path) for path in node.files("*.log", f"{topic}-0"))

    def is_small() -> bool:
        return size() < allowed + 2000

    node.advance_until(is_small, step_ms=301_000)
    node.advance(301_000)
    node.assert_stays_false(lambda: size() < allowed)


def check_retention_time(node: LiveNode, topic: str, value: str) -> None:
    assert node.write(topic, b"a") == 0
    end = offset_at(node.client, (topic, 0), LATEST)
    node.assert_happens_after(
        int(value), lambda: offset_at(node.client, (topic, 0), EARLIEST) == end
    )


def check_file_delay(node: LiveNode, topic: str, value: str) -> None:
    assert node.write(topic, b"a") == 0
    end = offset_at(node.client, (topic, 0), LATEST)
    last = f"{end - 1:020}.log"
    assert delete_records(node.client, (topic, 0), end)[0] == 0
    node.advance_until(
        lambda: last not in {path.name for path in node.files("*.log", f"{topic}-0")},
        step_ms=1_000,
    )
    node.assert_happens_after(int(value), lambda: not node.files("*.deleted", f"{topic}-0"))


# Flushing


def check_flush_count(node: LiveNode, topic: str, value: str) -> None:
    def is_synced() -> bool:
        end = offset_at(node.client, (topic, 0), LATEST)
        return node.checkpoint(RECOVERY_POINTS, topic) == end

    wanted = int(value)
    if wanted > 1:
        assert node.write(topic, *[b"a"] * (wanted - 1)) == 0
        node.advance(2_000)
        node.assert_stays_false(is_synced)
    assert node.write(topic, b"a") == 0
    node.advance_until(is_synced, step_ms=1_000)


def check_flush_time(node: LiveNode, topic: str, value: str) -> None:
    assert node.write(topic, b"a") == 0
    end = offset_at(node.client, (topic, 0), LATEST)
    node.assert_happens_after(int(value), lambda: node.checkpoint(RECOVERY_POINTS, topic) == end)


# Compaction


def write_twice(node: LiveNode, topic: str) -> bytes:
    """Writes a key with two values into a segment, and seals it. Returns the key."""
    key = fresh_key()
    assert node.write(topic, b"old", key=key) == 0
    assert node.write(topic, b"new", key=key) == 0
    seal(node, topic)
    return key


def seal(node: LiveNode, topic: str) -> None:
    """Seals the segment by filling it: these topics have segments of 1000 bytes."""
    assert node.write(topic, b"a" * 900, key=fresh_key()) == 0


def is_compacted(node: LiveNode, topic: str, key: bytes) -> Callable[[], bool]:
    return lambda: node.values(topic, key) == [b"new"]


def check_cleanable_ratio(node: LiveNode, topic: str, value: str) -> None:
    """A ratio of 1 is never exceeded, so nothing is compacted."""
    key = write_twice(node, topic)
    if value == "1":
        node.advance(HOUR_MS)
        node.assert_stays_false(is_compacted(node, topic, key))
    else:
        node.advance_until(is_compacted(node, topic, key))


def check_compaction_lag(node: LiveNode, topic: str, value: str) -> None:
    key = write_twice(node, topic)
    node.assert_happens_after(int(value), is_compacted(node, topic, key))


def check_overdue_compaction(node: LiveNode, topic: str, value: str) -> None:
    """The lag also seals segments, at the next append. The dirty ratio alone is never reached."""
    key = fresh_key()
    assert node.write(topic, b"old", key=key) == 0
    assert node.write(topic, b"new", key=key) == 0

    def is_clean() -> bool:
        assert node.write(topic, b"a", key=b"other") == 0
        return node.values(topic, key) == [b"new"]

    node.assert_happens_after(int(value), is_clean)


def check_tombstones(node: LiveNode, topic: str, value: str) -> None:
    """The first pass over a tombstone sets its delete horizon; a pass after that removes it."""
    key = fresh_key()
    assert node.write(topic, b"old", key=key) == 0
    assert node.write(topic, None, key=key) == 0
    seal(node, topic)
    node.advance_until(lambda: node.values(topic, key) == [None])
    for share, left in ((0.6, [None]), (0.6, [])):
        node.advance(int(value) * share)
        other = write_twice(node, topic)
        node.advance_until(is_compacted(node, topic, other), step_ms=15_000)
        assert node.values(topic, key) == left
