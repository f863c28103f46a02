"""Refused requests, to a live Apache Kafka and to Moldau: the same codes and the same texts, to the
letter, because Apache's tools print them.
"""

import re
from collections.abc import Iterator
from functools import partial

import pytest
from interop.apache import ApacheOracle
from interop.node_pair import TIMEOUT_MS, Asker, Pair, plain, running_pairs
from support.waiting import wait_for

from moldau.config.alter import Operation
from moldau.protocol import messages as m
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from moldau.protocol.messages.describe_configs import DescribeConfigsResource
from moldau.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
)
from moldau.protocol.messages.leave_group import MemberIdentity
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.produce import PartitionProduceData, TopicProduceData
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.schema import Message
from moldau.types import ProducerEpoch

pytestmark = pytest.mark.interop

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
GROUP, METRICS = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS
SET, DELETE, APPEND, SUBTRACT = Operation
# A real file has settings of vendors, plug-ins and older releases.
SETTINGS = {"vendor.balancer.enable": "true", "log.unclean.leader.election.enable": "true"}
SECRET = "vendor.secret"


@pytest.fixture(scope="module")
def pair(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pairs(apache, tmp_path_factory.mktemp("pair"), SETTINGS) as pairs:
        compact = CreatableTopicConfig(name="cleanup.policy", value="compact")
        pairs.brokers.create(
            CreatableTopic(name="there", num_partitions=1, replication_factor=1),
            CreatableTopic(
                name="compacted", num_partitions=1, replication_factor=1, configs=[compact]
            ),
        )
        yield pairs.brokers


def resource(kind: int, name: str, *changes: tuple[str, str | None, int]) -> AlterConfigsResource:
    altered = [AlterableConfig(name=n, value=v, config_operation=o) for n, v, o in changes]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=altered)


def on_topic(name: str, value: str | None, operation: int = SET) -> AlterConfigsResource:
    return resource(TOPIC, "there", (name, value, operation))


def on_broker(name: str, value: str | None, operation: int = SET) -> AlterConfigsResource:
    return resource(BROKER, "1", (name, value, operation))


def on_brokers(name: str, value: str | None, operation: int = SET) -> AlterConfigsResource:
    return resource(BROKER, "", (name, value, operation))


def on_group(name: str, value: str | None, operation: int = SET) -> AlterConfigsResource:
    return resource(GROUP, "g", (name, value, operation))


def on_metrics(name: str, value: str | None, operation: int = SET) -> AlterConfigsResource:
    return resource(METRICS, "m", (name, value, operation))


REFUSED_SETTINGS = [
    on_topic("retention.ms", "-2"),
    on_topic("retention.ms", "9223372036854775808"),
    on_topic("retention.ms", ""),
    on_topic("retention.ms", " 7 x "),
    on_topic("preallocate", "maybe"),
    on_topic("min.insync.replicas", "0"),
    on_topic("min.insync.replicas", "1.5"),
    on_topic("max.message.bytes", "-1"),
    on_topic("segment.bytes", "1"),
    on_topic("cleanup.policy", "shred"),
    on_topic("cleanup.policy", "delete,shred"),
    on_topic("cleanup.policy", "delete,,compact"),
    on_topic("compression.type", "rar"),
    on_topic("compression.gzip.level", "0"),
    on_topic("compression.lz4.level", "99"),
    on_topic("compression.zstd.level", "99"),
    on_topic("message.timestamp.type", "Now"),
    on_topic("min.cleanable.dirty.ratio", "2"),
    on_topic("min.cleanable.dirty.ratio", "-0.5"),
    on_topic("min.cleanable.dirty.ratio", "half"),
    on_topic("leader.replication.throttled.replicas", "everybody"),
    on_topic("leader.replication.throttled.replicas", "0:1,2"),
    on_topic("remote.storage.enable", "true"),
    on_topic("local.retention.ms", "-3"),
    on_topic("no.such", "1"),
    on_topic("no.such", "1", APPEND),
    on_topic("retention.ms", "1", SUBTRACT),
    on_topic("retention.ms", None),
    on_topic("cleanup.policy", "shred", APPEND),
    resource(TOPIC, "there", ("a", None, SET), ("b", None, APPEND)),
    resource(TOPIC, "there", ("retention.ms", "1", SET), ("retention.ms", "2", SET)),
    on_broker("node.id", "7"),
    resource(BROKER, "1", ("node.id", "7", SET), ("log.dirs", "/x", SET), ("broker.id", "7", SET)),
    on_broker("ssl.keystore.location", "/x"),
    resource(BROKER, "1", ("ssl.keystore.location", "/x", SET), ("ssl.key.password", "x", SET)),
    on_broker("message.max.bytes", "-1"),
    on_broker("message.max.bytes", "many"),
    on_broker("log.cleaner.io.buffer.load.factor", "much"),
    on_broker("log.retention.ms", "0"),
    on_broker("log.cleaner.threads", "99"),
    on_broker("num.io.threads", "99"),
    on_broker("num.network.threads", "0"),
    on_broker("background.threads", "1"),
    on_broker("log.cleanup.policy", "shred", APPEND),
    on_broker("message.max.bytes", "1", APPEND),
    on_broker("message.max.bytes", "1", SUBTRACT),
    on_broker("no.such", "1", APPEND),
    on_broker("no.such", "1", 9),
    on_broker("cordoned.log.dirs", "/nowhere"),
    on_broker("cordoned.log.dirs", "*,/nowhere"),
    on_broker("max.connections.per.ip", "-1"),
    on_broker("leader.replication.throttled.rate", "-1"),
    on_broker("listener.name.plaintext.max.connections", "x"),
    on_broker("group.consumer.assignment.interval.ms", "999999999"),
    on_brokers("node.id", "7"),
    on_brokers("listeners", "PLAINTEXT://:1"),
    on_brokers("cordoned.log.dirs", "*"),
    on_brokers("listener.name.plaintext.ssl.keystore.location", "/x"),
    on_brokers("listener.name.plaintext.no.such", "/x"),
    resource(
        BROKER,
        "",
        ("listener.name.plaintext.ssl.keystore.location", "/x", SET),
        ("listener.name.plaintext.ssl.keystore.password", "x", SET),
    ),
    on_brokers("ssl.truststore.location", "/x"),
    on_brokers("log.retention.ms", "0"),
    on_group("no.such", "1"),
    on_group("consumer.session.timeout.ms", "soon"),
    on_group("consumer.session.timeout.ms", "999999999"),
    on_group("consumer.heartbeat.interval.ms", "1"),
    on_group("share.auto.offset.reset", "sometimes"),
    on_group("share.isolation.level", "dirty"),
    on_group("share.record.lock.duration.ms", "1"),
    on_group("share.delivery.count.limit", "1"),
    on_group("streams.num.standby.replicas", "9"),
    on_group("consumer.session.timeout.ms", "1", APPEND),
    resource(GROUP, "", ("consumer.session.timeout.ms", "50000", SET)),
    on_metrics("no.such", "1"),
    on_metrics("interval.ms", "soon"),
    on_metrics("interval.ms", "99"),
    on_metrics("match", "colour=blue"),
    on_metrics("match", "client_id=["),
    on_metrics("match", "client_id"),
    on_metrics("metrics", "a", APPEND),
    resource(BROKER, "-1", ("message.max.bytes", "1", SET)),
    resource(BROKER, "2", ("message.max.bytes", "1", SET)),
    resource(BROKER, "one", ("message.max.bytes", "1", SET)),
    resource(ConfigResourceType.BROKER_LOGGER, "1", ("no.such.logger", "INFO", SET)),
    resource(ConfigResourceType.BROKER_LOGGER, "1", ("root", "LOUD", SET)),
    resource(ConfigResourceType.BROKER_LOGGER, "1", ("root", None, DELETE)),
    resource(ConfigResourceType.BROKER_LOGGER, "1", ("root", "INFO", APPEND)),
    resource(ConfigResourceType.BROKER_LOGGER, "2", ("root", "INFO", SET)),
    resource(ConfigResourceType.BROKER_LOGGER, "", ("root", "INFO", SET)),
    resource(0, "x"),
    resource(99, "x"),
]


def name_of(requested: AlterConfigsResource) -> str:
    changes = [f"{each.name}={(each.value or '')[:12]}" for each in requested.configs]
    return f"{requested.resource_type}-{requested.resource_name}-{'-'.join(changes)}"


@pytest.mark.parametrize("requested", REFUSED_SETTINGS, ids=name_of)
def test_settings_are_refused_in_the_same_words(
    pair: Pair, requested: AlterConfigsResource
) -> None:
    answer = pair.same(m.IncrementalAlterConfigsRequest(resources=[requested]), 1)
    assert answer.responses[0].error_code != 0


def description(kind: int, name: str, *keys: str) -> Message:
    requested = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return m.DescribeConfigsRequest(resources=[requested], include_synonyms=True)


ACCEPTED_SETTINGS = [
    on_topic("cleanup.policy", "delete,delete"),
    on_broker("listener.name.plaintext.ssl.client.auth", "required"),
    on_broker("listener.name.plaintext.ssl.client.auth", None, DELETE),
]


@pytest.mark.parametrize("requested", ACCEPTED_SETTINGS, ids=name_of)
def test_valid_settings_that_look_wrong_are_accepted_by_both(
    pair: Pair, requested: AlterConfigsResource
) -> None:
    answer = pair.same(m.IncrementalAlterConfigsRequest(resources=[requested]), 1)
    assert answer.responses[0].error_code == 0


def shows(side: Asker, request: Message, name: str) -> bool:
    (result,) = side.ask(request, 4).results
    return any(each.name == name for each in result.configs)


@pytest.mark.parametrize("name", ["1", ""], ids=["one broker", "all brokers"])
def test_unknown_settings_of_brokers_are_stored_alike(pair: Pair, name: str) -> None:
    typo = "log.cleaner.thread"
    stored = resource(BROKER, name, (SECRET, "hush", SET), (typo, "3", SET))
    pair.same(m.IncrementalAlterConfigsRequest(resources=[stored]), 1)
    request = description(BROKER, name, SECRET, typo, *SETTINGS)
    for side in pair:
        # Apache's broker learns of it late.
        wait_for(partial(shows, side, request, typo), typo)
    (result,) = pair.same(request, 4).results
    (secret,) = [each for each in result.configs if each.name == SECRET]
    assert secret.is_sensitive
    assert secret.value is None
    gone = resource(BROKER, name, (SECRET, None, DELETE), (typo, None, DELETE))
    pair.same(m.IncrementalAlterConfigsRequest(resources=[gone]), 1)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TOPIC, "missing"),
        (TOPIC, ""),
        (TOPIC, "a/b"),
        (BROKER, "2"),
        (BROKER, "one"),
        (ConfigResourceType.BROKER_LOGGER, "2"),
        (ConfigResourceType.BROKER_LOGGER, "one"),
        (ConfigResourceType.BROKER_LOGGER, ""),
        (GROUP, ""),
        (METRICS, ""),
        (0, "x"),
        (99, "x"),
    ],
)
def test_invalid_descriptions_are_refused_in_the_same_words(
    pair: Pair, kind: int, name: str
) -> None:
    pair.same(description(kind, name, "retention.ms"), 4)


def of_topic(name: str, *, offset: int = 0, partition: int = 0) -> Message:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    topic = DeleteRecordsTopic(name=name, partitions=[wanted])
    return m.DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def moved(path: str, name: str) -> Message:
    topic = AlterReplicaLogDirTopic(name=name, partitions=[0, 9])
    return m.AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])


def forgotten(group: str, name: str = "there") -> Message:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topic = OffsetDeleteRequestTopic(name=name, partitions=partitions)
    return m.OffsetDeleteRequest(group_id=group, topics=[topic])


REFUSED_REQUESTS: list[tuple[Message, tuple[int, ...]]] = [
    (m.DescribeGroupsRequest(groups=["missing", ""]), ()),
    (m.DeleteGroupsRequest(groups_names=["missing", ""]), ()),
    (forgotten("missing"), ()),
    (forgotten(""), ()),
    (m.ListGroupsRequest(states_filter=["nonsense"]), (4, 5)),
    (m.ListGroupsRequest(types_filter=["nonsense"]), (5,)),
    (m.DescribeTransactionsRequest(transactional_ids=["missing", ""]), ()),
    (m.ListTransactionsRequest(state_filters=["nonsense", "Ongoing"]), ()),
    (m.ListTransactionsRequest(transactional_id_pattern="["), (2,)),
    (
        m.DescribeProducersRequest(
            topics=[
                ProducersTopic(name=name, partition_indexes=[0, 9, -1])
                for name in ("missing", "there", "a/b", "")
            ]
        ),
        (),
    ),
    (of_topic("missing"), ()),
    (of_topic("there", partition=9), ()),
    (of_topic("there", offset=99), ()),
    (of_topic("there", offset=-2), ()),
    (of_topic("__consumer_offsets"), ()),
    (moved("/nowhere", "there"), ()),
    (moved("/nowhere", "missing"), ()),
    (m.FindCoordinatorRequest(key="", key_type=0), (1, 2, 3)),
    (m.FindCoordinatorRequest(key="k", key_type=9), (1, 2, 3)),
    (m.FindCoordinatorRequest(coordinator_keys=["", "k"], key_type=9), (4, 5, 6)),
    (m.FindCoordinatorRequest(coordinator_keys=["", "k"]), (4, 5, 6)),
    (m.LeaveGroupRequest(group_id="missing", members=[MemberIdentity(member_id="x")]), (3, 4, 5)),
    (m.ListConfigResourcesRequest(resource_types=[99, 2]), (1,)),
    (m.UnregisterBrokerRequest(broker_id=77), ()),
    (m.SaslHandshakeRequest(mechanism="PLAIN"), ()),
    (m.SaslAuthenticateRequest(auth_bytes=b"hello"), ()),
]


@pytest.mark.parametrize(
    ("request_", "versions"),
    REFUSED_REQUESTS,
    ids=[f"{place}-{type(each).__name__}" for place, (each, _) in enumerate(REFUSED_REQUESTS)],
)
def test_requests_are_refused_in_the_same_words(
    coordinated: Pair, request_: Message, versions: tuple[int, ...]
) -> None:
    coordinated.same(request_, *versions)


@pytest.fixture(scope="module")
def coordinated(pair: Pair) -> Pair:
    """With coordinators of groups and transactions, which the first request for each creates."""
    for side in pair:
        for kind in (0, 1):
            wait_for(partial(has_coordinator, side, kind), "a coordinator")
    return pair


def has_coordinator(side: Asker, kind: int) -> bool:
    requested = m.FindCoordinatorRequest(coordinator_keys=["missing"], key_type=kind)
    (found,) = side.ask(requested, 4).coordinators
    return bool(found.error_code == 0)


# Produce. Version 13 names topics by ids, which differ.
PRODUCE_VERSIONS = range(3, 13)
TIME_MS = 1_700_000_000_000
NO_KEYS = [Record(place, TIME_MS, None, b"v") for place in range(5)]
ONE = [Record(0, TIME_MS, b"k", b"v")]


def produced(
    records: bytes,
    topic: str = "there",
    *,
    partition: int = 0,
    acks: int = -1,
    id_: str | None = None,
) -> m.ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return m.ProduceRequest(
        transactional_id=id_,
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def numbered(sequence: int, *, is_transactional: bool = False) -> bytes:
    options = BatchOptions(
        producer_id=7,
        producer_epoch=ProducerEpoch(0),
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return build_batch(ONE, options)


def damaged() -> bytes:
    made = bytearray(build_batch(ONE))
    made[-1] ^= 1
    return bytes(made)


REFUSED_BATCHES = {
    "one without a key": produced(build_batch(NO_KEYS[:1]), "compacted"),
    "five without a key": produced(build_batch(NO_KEYS), "compacted"),
    "too large": produced(build_batch([Record(0, TIME_MS, None, bytes(1_100_000))])),
    "damaged": produced(damaged()),
    "no topic": produced(build_batch(ONE), "missing"),
    "no partition": produced(build_batch(ONE), partition=9),
    "acks": produced(build_batch(ONE), acks=2),
    "no transactional id": produced(numbered(0, is_transactional=True)),
    "an unknown transaction": produced(numbered(0, is_transactional=True), id_="missing"),
}


@pytest.mark.parametrize("name", REFUSED_BATCHES)
def test_batches_are_refused_in_the_same_words(coordinated: Pair, name: str) -> None:
    answer = coordinated.same(REFUSED_BATCHES[name], *PRODUCE_VERSIONS)
    assert answer.responses[0].partition_responses[0].error_code != 0


def test_a_gap_in_the_sequence_is_refused_in_the_same_words(pair: Pair) -> None:
    for side in pair:
        side.ask(produced(numbered(0)), 12)
    answer = pair.same(produced(numbered(9)), *PRODUCE_VERSIONS)
    assert answer.responses[0].partition_responses[0].error_code != 0


def without_bounds(value: object) -> str:
    """Each clock determines its own range."""
    return re.sub(r"\[-?\d+, -?\d+\]", "[bounds]", repr(value))


@pytest.mark.parametrize("version", [7, 8, 12])
def test_times_out_of_range_are_refused_in_the_same_words(pair: Pair, version: int) -> None:
    late = [*ONE, Record(1, 2**52, b"k", b"v"), Record(2, 2**52 + 1, b"k", b"v")]
    request = produced(build_batch(late))
    theirs, ours = (without_bounds(plain(side.ask(request, version))) for side in pair)
    assert ours == theirs
    assert ("within [bounds]" in ours) is (version >= 8)
