"""Groups that Apache Kafka 4.3.1 wrote: a classic one, a KIP-848 one, a share group, and offsets
that were committed in a transaction.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from core.groups.bench import listed_groups
from storage.samples import SAMPLES, unpack

from moldau.core.coordinator.effects import Turn
from moldau.core.coordinator.placement import partition_for
from moldau.core.coordinator.playback import replay_batch
from moldau.core.groups.group_records import decode_group_record
from moldau.core.groups.group_shard import GroupShard
from moldau.core.groups.listing import describe_group
from moldau.core.groups.settings import GroupSettings
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from moldau.protocol.records.batches import iterate_batches

if TYPE_CHECKING:
    from moldau.core.groups.turns import GroupTurn


def loaded_shards(folder: Path) -> Iterator[tuple[int, GroupShard]]:
    for partition in sorted(folder.rglob("__consumer_offsets-*")):
        shard = GroupShard(GroupSettings)
        for segment in sorted(partition.glob("*.log")):
            for batch in iterate_batches(segment.read_bytes()):
                replay_batch(shard, batch, decode_group_record)
        yield int(partition.name.rsplit("-", 1)[1]), shard


@pytest.mark.parametrize("which", ["clean", "dirty"])
def test_committed_offsets_are_what_apaches_clients_fetch(
    which: Literal["clean", "dirty"], tmp_path: Path
) -> None:
    shards = dict(loaded_shards(unpack(which, tmp_path)))
    expected = json.loads((SAMPLES / "expected.json").read_text())["groups"]
    for group_id, offsets in expected.items():
        shard = shards[partition_for(group_id, len(shards))]
        request = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        fetched = shard.offsets.fetch(request, requires_stable=True).response
        # confluent-kafka commits the terminating zero of C strings, and does not show it.
        found = [
            [t.name, p.partition_index, p.committed_offset, (p.metadata or "").rstrip("\0") or None]
            for t in fetched.topics
            for p in t.partitions
        ]
        assert sorted(found) == offsets


def test_groups_of_all_kinds_are_recognized(tmp_path: Path) -> None:
    listed = {
        group.group_id: (group.group_type, group.group_state, group.protocol_type)
        for _, shard in loaded_shards(unpack("clean", tmp_path))
        for group in listed_groups(shard.registry)
    }
    assert listed["classic-group"] == ("classic", "Empty", "consumer")
    assert listed["new-group"] == ("consumer", "Empty", "consumer")
    assert listed["tx-group"][0] == "classic"
    assert ("share", "Empty", "share") in listed.values()


def test_loading_writes_nothing(tmp_path: Path) -> None:
    for _, shard in loaded_shards(unpack("clean", tmp_path)):
        turn: GroupTurn = Turn(now_ms=1_700_000_000_000)
        shard.loaded(turn)
        assert {type(effect).__name__ for effect in turn.effects} == {"StartTimer"}
        for group_id in shard.registry.ids():
            describe_group(shard.registry, group_id, 6)
