"""One directory and one server.properties, with Moldau and Apache Kafka 4.3.1 as its node in turns:
each finds the other's data and adds to it.
"""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from interop.apache import ApacheOracle
from interop.dump import faults
from interop.live_broker import CLIENT_TIMEOUT_S, LiveBroker, LiveMoldau, LiveNode
from interop.workload import CODECS, PARTITIONS, fill
from storage.samples import SAMPLES, unpack
from system.node.test_samples_served import EXPECTED

from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

CONFIG = ConfigResource(ConfigResource.Type.TOPIC, "segmented")


def taking_turns(apache: ApacheOracle, folder: Path) -> tuple[LiveMoldau, LiveBroker]:
    """Two nodes with one identity: the same directory, settings and ports."""
    ours, theirs = LiveMoldau(folder), LiveBroker(apache, folder)
    ours.address, ours.controller_address = theirs.address, theirs.controller_address
    return ours, theirs


def write_more(node: LiveNode, label: str) -> None:
    """Some records in each codec, by idempotent producers."""
    for partition, codec in enumerate(CODECS):
        producer = node.producer(compression_type=codec, enable_idempotence=True)
        for number in range(50):
            producer.produce("codecs", f"{label} {number}", f"{codec}-{number}", partition)
        assert producer.flush(CLIENT_TIMEOUT_S) == 0


def everything(node: LiveNode) -> dict[str, Any]:
    """The records for readers of both isolation levels. Either node may compact meanwhile: in a
    compacted topic only the last value of each key is compared.
    """
    seen: dict[str, Any] = {}
    for committed in (False, True):
        for name, records in node.read(PARTITIONS, committed=committed).items():
            values = {record.key: record.value for record in records}
            kept = {key: value for key, value in values.items() if value is not None}
            seen[f"{name} {committed}"] = kept if name.topic == "compacted" else records
    return seen


def differing(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [name for name in theirs if ours.get(name) != theirs[name]]


def settings_and_ids(node: LiveNode) -> tuple[dict[str, str], dict[str, str]]:
    # The client must outlive its responses.
    admin = node.admin()
    (found,) = admin.describe_configs([CONFIG]).values()
    configs = {
        name: entry.value
        for name, entry in found.result(CLIENT_TIMEOUT_S).items()
        if entry.source == 1
    }
    return configs, topic_ids(admin)


def topic_ids(admin: Any) -> dict[str, str]:
    from confluent_kafka import TopicCollection

    names = sorted({partition.topic for partition in PARTITIONS})
    described = admin.describe_topics(TopicCollection(names))
    return {name: str(one.result(CLIENT_TIMEOUT_S).topic_id) for name, one in described.items()}


def test_records_settings_and_ids_survive_every_change_of_hands(
    apache: ApacheOracle, tmp_path: Path
) -> None:
    ours, theirs = taking_turns(apache, tmp_path)
    with ours, theirs:
        theirs.format()
        theirs.start()
        open_transaction = fill(theirs)
        before, about = everything(theirs), settings_and_ids(theirs)
        theirs.stop()

        ours.start()
        assert differing(everything(ours), before) == []
        assert settings_and_ids(ours) == about
        write_more(ours, "ours")
        before = everything(ours)
        ours.stop()

        theirs.start()
        assert differing(everything(theirs), before) == []
        assert settings_and_ids(theirs) == about
        write_more(theirs, "theirs")
        before = everything(theirs)
        theirs.kill()

        ours.start()
        assert differing(everything(ours), before) == []
        write_more(ours, "ours again")
        before = everything(ours)
        ours.kill()

        theirs.start()
        assert differing(everything(theirs), before) == []
        theirs.stop()
        del open_transaction
    for name in PARTITIONS:
        assert faults(apache, theirs.log_folder / str(name)) == []


def test_apache_starts_on_a_directory_that_moldau_created(
    apache: ApacheOracle, tmp_path: Path
) -> None:
    ours, theirs = taking_turns(apache, tmp_path)
    with ours, theirs:
        ours.format()
        ours.start()
        ours.create_topic("codecs", len(CODECS))
        write_more(ours, "ours")
        places = [TopicPartition("codecs", number) for number in range(len(CODECS))]
        before = ours.read(places)
        ours.stop()
        theirs.start()
        assert theirs.read(places) == before
        write_more(theirs, "theirs")
        before = theirs.read(places)
        theirs.stop()
        ours.start()
        assert ours.read(places) == before


def test_state_that_moldau_does_not_serve_is_kept_for_apache(
    apache: ApacheOracle, tmp_path: Path
) -> None:
    """ACLs, users, quotas, and transaction states, in the directory that Apache wrote."""
    settings = dict(
        line.split("=", 1)
        for line in (SAMPLES / "server.properties").read_text().splitlines()
        if "=" in line and "listeners=" not in line and "quorum" not in line
    )
    ours = LiveMoldau(tmp_path, settings)
    theirs = LiveBroker(apache, tmp_path, settings)
    ours.address, ours.controller_address = theirs.address, theirs.controller_address
    unpack("clean", theirs.log_folder)
    with ours, theirs:
        ours.start()
        ours.create_topic("made-by-moldau")
        ours.stop()
        theirs.start()
        admin = theirs.admin()
        anything: Any = None
        wanted = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            anything,
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        acls = admin.describe_acls(wanted).result(CLIENT_TIMEOUT_S)
        assert {(acl.restype.name, acl.name, acl.principal) for acl in acls} == {
            (kind, name, principal) for kind, name, _, principal, *_ in EXPECTED["acls"]
        }
        users = admin.describe_user_scram_credentials().result(CLIENT_TIMEOUT_S)
        assert list(users) == ["alice"]
        assert "made-by-moldau" in admin.list_topics(timeout=CLIENT_TIMEOUT_S).topics
        theirs.stop()
