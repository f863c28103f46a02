"""Apache Kafka's own metadata log and snapshots give the state that its clients saw."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from storage.samples import NODE_ID, SAMPLES, expected_topics, unpack

from moldau.core.metadata.image import (
    AclImage,
    ConfigResource,
    MetadataImage,
    ScramUser,
)
from moldau.core.metadata.loader import CommittedBatch, MetadataLoader
from moldau.protocol.enums import (
    AclOperation,
    AclPermissionType,
    ConfigResourceType,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.stored_records import decode_metadata_record
from moldau.types import LeaderEpoch, Offset

INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


def batches(path: Path) -> Iterator[CommittedBatch]:
    for batch in iterate_batches(path.read_bytes().rstrip(b"\0")):
        records = [] if batch.is_control else batch.records()
        messages = [decode_metadata_record(each.value or b"").message for each in records]
        yield CommittedBatch(
            Offset(batch.base_offset),
            Offset(batch.last_offset),
            LeaderEpoch(batch.partition_leader_epoch),
            batch.max_timestamp,
            messages,
        )


def image_of(paths: list[Path], *, until: int | None = None) -> MetadataImage:
    loader = MetadataLoader()
    for path in paths:
        for batch in batches(path):
            if until is None or batch.last_offset < until:
                loader.load(batch)
    loader.flush()
    return loader.image


@pytest.fixture(scope="module", params=["clean", "dirty"])
def metadata_directory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    which: Literal["clean", "dirty"] = request.param
    return unpack(which, tmp_path_factory.mktemp(which)) / "__cluster_metadata-0"


@pytest.fixture(scope="module")
def image(metadata_directory: Path) -> MetadataImage:
    return image_of(sorted(metadata_directory.glob("*.log")))


def test_topics_ids_and_configs_are_those_that_clients_saw(image: MetadataImage) -> None:
    expected = expected_topics()
    assert image.topics.keys() - INTERNAL == expected.keys()
    for name, topic in expected.items():
        assert image.topics[name].topic_id == topic.topic_id
        assert image.topics_by_id[topic.topic_id].name == name
        assert image.topics[name].partitions.keys() == topic.partitions.keys()
        assert image.config_of(ConfigResourceType.TOPIC, name) == topic.configs
        for partition in image.topics[name].partitions.values():
            assert partition.replicas == (NODE_ID,)
            assert len(partition.directories) == 1


def test_acls_quotas_and_users_are_those_that_clients_saw(image: MetadataImage) -> None:
    expected = json.loads((SAMPLES / "expected.json").read_text())
    acls = {
        AclImage(
            ResourceType[kind],
            name,
            PatternType[pattern],
            principal,
            host,
            AclOperation[operation],
            AclPermissionType[permission],
        )
        for kind, name, pattern, principal, host, operation, permission in expected["acls"]
    }
    assert set(image.acls.values()) == acls
    assert image.client_quotas == {
        (("client-id", "app-1"),): expected["client_quotas"]["client-id app-1"]
    }
    users = {ScramUser("alice", ScramMechanism[name]) for name in expected["scram_users"]}
    assert image.scram_credentials.keys() == users
    assert image.features["metadata.version"] == 30


def test_snapshots_equal_the_log_up_to_them(metadata_directory: Path) -> None:
    logs = sorted(metadata_directory.glob("*.log"))
    checkpoints = sorted(metadata_directory.glob("*.checkpoint"))
    assert len(checkpoints) > 1
    for checkpoint in checkpoints:
        offset = int(checkpoint.name.partition("-")[0])
        snapshot, replayed = image_of([checkpoint]), image_of(logs, until=offset)
        assert anywhere(snapshot) == anywhere(replayed), checkpoint.name


def anywhere(image: MetadataImage) -> MetadataImage:
    """The image without its offset, epoch and time."""
    return replace(image, offset=Offset(0), epoch=LeaderEpoch(0), timestamp_ms=0)


def test_dynamic_configs_of_brokers_and_groups_are_kept(image: MetadataImage) -> None:
    kinds = {resource.kind for resource in image.configs}
    assert {ConfigResourceType.BROKER, ConfigResourceType.GROUP} <= kinds
    assert ConfigResource(ConfigResourceType.BROKER, "") in image.configs
