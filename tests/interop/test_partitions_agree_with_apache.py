"""Keys go to the partitions that Kafka's own producer chooses."""

from random import Random

import pytest
from interop.apache import ApacheOracle

from moldau.core.producer.batching import murmur2, partitions_of_keys
from moldau.core.producer.partitioners import named_partitioner

pytestmark = pytest.mark.interop


def test_partitions_are_the_same(apache: ApacheOracle) -> None:
    chance = Random(1)
    keys = [chance.randbytes(chance.randint(0, 40)) for _ in range(3_000)]
    counts = [chance.choice([1, 2, 3, 7, 50, 1_000, 2**31 - 1]) for _ in keys]
    queries = [f"{count} {key.hex()}" for count, key in zip(counts, keys, strict=True)]
    run = apache.run_tool("PartitionOracle", stdin="\n".join(queries).encode())
    theirs = [int(line) for line in run.output.splitlines()]
    by_name = named_partitioner("murmur2", chance.random)
    for key, count, wanted in zip(keys, counts, theirs, strict=True):
        assert (murmur2(key) & 0x7FFF_FFFF) % count == wanted
        assert by_name("topic", key, None, count) == wanted
        offsets = b"".join(end.to_bytes(4, "little") for end in (0, len(key)))
        column = partitions_of_keys(offsets, key, 0, 1, count)
        assert int.from_bytes(column, "little") == wanted
