"""Settings: a live Apache Kafka and Moldau describe the same files and the same changes at run time
alike. Only the documentation is our own.
"""

import json
import random
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.apache import ApacheOracle
from interop.live_broker import CLIENT_TIMEOUT_S, NODE_ID, LiveBroker, LiveMoldau, LiveNode
from support.waiting import wait_for

from moldau.config.alter import Operation
from moldau.config.broker import BrokerConfig
from moldau.config.describe import (
    Described,
    Synonym,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_consumer_group,
    describe_topic,
)
from moldau.config.dynamic import layered_config
from moldau.config.layers import Layers
from moldau.config.properties import parse_properties
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.wire.frame import LENGTH_BYTES, build_request, read_response
from moldau.protocol.wire.schema import Message

pytestmark = pytest.mark.interop

CASES = Path(__file__).parents[1] / "config" / "properties_cases.json"
TOPIC, GROUP, SUBSCRIPTION = "described", "described-group", "described-metrics"
# Kept verbatim: both read escapes, blanks and continued lines.
ODD_LINES = r"""
! a comment
broker.rack : r\u0061ck\
    \ one
log.retention.minutes   600
log.roll.hours=24
compression.type=  zstd
listener.name.plaintext.max.connections=77
super.users=User:admin
delegation.token.secret.key=geheim
unstable.api.versions.enable=false
log.cleaner.io.buffer.load.factor=0.75
max.connections.per.ip.overrides=127.0.0.9:5
"""
# The settings of all brokers that Apache's controller makes for eligible leader replicas.
FIRST_CHANGES = {"min.insync.replicas": "1"}
TOPIC_CHANGES = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "7000",
    "min.cleanable.dirty.ratio": "0.0001",
    "segment.bytes": "1048576",
}
OWN_CHANGES = {
    "log.cleaner.backoff.ms": "1234",
    "log.retention.ms": "99999",
    "listener.name.plaintext.ssl.keystore.password": "geheim",
    "leader.replication.throttled.rate": "1000",
}
CLUSTER_CHANGES = {
    "log.cleaner.backoff.ms": "777",
    "message.max.bytes": "2000000",
    "log.flush.interval.ms": "55",
    "group.consumer.assignment.interval.ms": "50",
}
GROUP_CHANGES = {"consumer.session.timeout.ms": "50000", "share.isolation.level": "read_committed"}
METRICS_CHANGES = {"metrics": "org.apache.kafka.", "interval.ms": "60000"}


class Talk:
    """One connection for requests, each with its response."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=CLIENT_TIMEOUT_S)
        self._stream = self._socket.makefile("rb")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, request: Message, answer: type[Message], version: int) -> Any:
        frame = build_request(request, version, correlation_id=1, client_id="interop")
        self._socket.sendall(b"".join(frame))
        size = int.from_bytes(self._stream.read(LENGTH_BYTES), "big")
        return read_response(self._stream.read(size), answer, version)[1]

    def describe(self, kind: ConfigResourceType, name: str) -> list[Described]:
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=True
        )
        (result,) = self.ask(request, DescribeConfigsResponse, 4).results
        assert result.error_code == 0, result.error_message
        return [_described(row) for row in result.configs]

    def change(
        self, kind: ConfigResourceType, name: str, changes: dict[str, str]
    ) -> tuple[int, str | None]:
        return self._alter(
            kind,
            name,
            [
                AlterableConfig(name=key, config_operation=Operation.SET, value=text)
                for key, text in changes.items()
            ],
        )

    def alter(
        self, kind: int, name: str, key: str, value: str | None, operation: int
    ) -> tuple[int, str | None]:
        change = AlterableConfig(name=key, config_operation=operation, value=value)
        return self._alter(kind, name, [change])

    def _alter(
        self, kind: int, name: str, configs: list[AlterableConfig]
    ) -> tuple[int, str | None]:
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = self.ask(request, IncrementalAlterConfigsResponse, 1).responses
        return result.error_code, result.error_message


def _described(row: Any) -> Described:
    return Described(
        name=row.name,
        value=row.value,
        source=row.config_source,
        synonyms=tuple(Synonym(one.name, one.value, one.source) for one in row.synonyms),
        kind=row.config_type,
        is_sensitive=row.is_sensitive,
        is_read_only=row.read_only,
        documentation=row.documentation,
    )


def _comparable(rows: Iterable[Described]) -> dict[str, Described]:
    return {
        row.name: row._replace(documentation=None)
        for row in rows
        if not row.name.startswith("moldau.")
    }


@pytest.fixture(scope="module")
def node(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(apache, tmp_path_factory.mktemp("described")) as live:
        with live.properties.open("a", encoding="utf-8") as properties:
            properties.write(ODD_LINES)
        live.format()
        live.start()
        yield live


@pytest.fixture(scope="module")
def moldau(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMoldau]:
    with LiveMoldau(tmp_path_factory.mktemp("ours")) as live:
        with live.properties.open("a", encoding="utf-8") as properties:
            properties.write(ODD_LINES)
        live.format()
        live.start()
        yield live


@pytest.fixture(scope="module")
def our_talk(moldau: LiveMoldau) -> Iterator[Talk]:
    connection = Talk(moldau.address)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def talk(node: LiveBroker) -> Iterator[Talk]:
    connection = Talk(node.address)
    yield connection
    connection.close()


def neutral(text: str | None, node: LiveNode) -> str | None:
    """Without the values specific to a node: its ports and its directory."""
    for own, word in (
        (node.address, "ADDRESS"),
        (node.controller_address, "CONTROLLER"),
        (str(node.log_folder), "FOLDER"),
    ):
        text = None if text is None else text.replace(own, word)
    return text


def neutral_rows(rows: list[Described], node: LiveNode) -> dict[str, Described]:
    return {
        name: row._replace(
            value=neutral(row.value, node),
            synonyms=tuple(one._replace(value=neutral(one.value, node)) for one in row.synonyms),
        )
        for name, row in _comparable(rows).items()
    }


def our_config(
    node: LiveBroker, cluster: dict[str, str] | None = None, own: dict[str, str] | None = None
) -> BrokerConfig:
    static = BrokerConfig.parse(parse_properties(node.properties.read_text(encoding="utf-8")))
    return layered_config(Layers(static.given, FIRST_CHANGES | (cluster or {}), own or {}))


def test_the_same_files_are_read_alike(apache: ApacheOracle) -> None:
    files = [case["text"] for case in json.loads(CASES.read_text(encoding="utf-8"))]
    chooser = random.Random(4)
    pieces = ["a", "b", "=", ":", " ", "\t", "\f", "\\", "\n", "\r", "#", "!", "\\u0041", "ü"]
    files += [
        "".join(chooser.choices(pieces, k=chooser.randrange(1, 14))) + "z" for _ in range(4_000)
    ]
    question = "\n".join(file.encode().hex() for file in files)
    run = apache.run_tool("PropertiesOracle", stdin=question.encode())
    assert run.status == 0, run.errors
    answers = run.output.splitlines()
    assert len(answers) == len(files)
    for file, answer in zip(files, answers, strict=True):
        assert _read_by_us(file) == _read_by_java(answer), repr(file)


def _read_by_us(file: str) -> dict[str, str] | None:
    try:
        return parse_properties(file)
    except KafkaError:
        return None


def _read_by_java(answer: str) -> dict[str, str] | None:
    if answer == "refused":
        return None
    texts = [bytes.fromhex(part).decode()[1:] for part in answer.split()[1:]]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def test_a_node_is_described_alike(node: LiveBroker, talk: Talk) -> None:
    theirs = _comparable(talk.describe(ConfigResourceType.BROKER, str(NODE_ID)))
    ours = _comparable(describe_broker(our_config(node)))
    assert ours == theirs


def test_documentation_is_given_where_theirs_is(node: LiveBroker, talk: Talk) -> None:
    theirs = talk.describe(ConfigResourceType.BROKER, str(NODE_ID))
    ours = {row.name: row for row in describe_broker(our_config(node))}
    for row in theirs:
        assert (ours[row.name].documentation is None) == (row.documentation is None), row.name


def test_a_topic_is_described_alike(node: LiveBroker, talk: Talk) -> None:
    node.create_topic(TOPIC)
    config = our_config(node)
    theirs = _comparable(talk.describe(ConfigResourceType.TOPIC, TOPIC))
    assert _comparable(describe_topic({}, config)) == theirs
    assert talk.change(ConfigResourceType.TOPIC, TOPIC, TOPIC_CHANGES)[0] == 0
    wait_for(
        lambda: (
            {row.name: row for row in talk.describe(ConfigResourceType.TOPIC, TOPIC)}[
                "retention.ms"
            ].value
            == TOPIC_CHANGES["retention.ms"]
        ),
        "the topic's settings",
    )
    theirs = _comparable(talk.describe(ConfigResourceType.TOPIC, TOPIC))
    assert _comparable(describe_topic(TOPIC_CHANGES, config)) == theirs


def test_a_group_is_described_alike(node: LiveBroker, talk: Talk) -> None:
    config = our_config(node)
    theirs = _comparable(talk.describe(ConfigResourceType.GROUP, GROUP))
    assert _comparable(describe_consumer_group({}, config)) == theirs
    assert talk.change(ConfigResourceType.GROUP, GROUP, GROUP_CHANGES) == (0, None)
    ours = _comparable(describe_consumer_group(GROUP_CHANGES, config))
    wait_for(
        lambda: _comparable(talk.describe(ConfigResourceType.GROUP, GROUP)) == ours,
        "the group's settings",
    )


def test_a_metrics_subscription_is_described_alike(talk: Talk) -> None:
    kind = ConfigResourceType.CLIENT_METRICS
    assert _comparable(talk.describe(kind, SUBSCRIPTION)) == _comparable(
        describe_client_metrics({})
    )
    assert talk.change(kind, SUBSCRIPTION, METRICS_CHANGES)[0] == 0
    ours = _comparable(describe_client_metrics(METRICS_CHANGES))
    wait_for(
        lambda: _comparable(talk.describe(kind, SUBSCRIPTION)) == ours,
        "the subscription's settings",
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ConfigResourceType.BROKER, str(NODE_ID)),
        (ConfigResourceType.BROKER, ""),
        (ConfigResourceType.GROUP, "untouched"),
        (ConfigResourceType.CLIENT_METRICS, "untouched"),
    ],
)
def test_live_nodes_describe_themselves_alike(
    node: LiveBroker,
    talk: Talk,
    moldau: LiveMoldau,
    our_talk: Talk,
    kind: ConfigResourceType,
    name: str,
) -> None:
    theirs = neutral_rows(talk.describe(kind, name), node)
    assert neutral_rows(our_talk.describe(kind, name), moldau) == theirs


def test_the_controllers_listener_says_the_same(node: LiveBroker, moldau: LiveMoldau) -> None:
    rows = []
    for live in (node, moldau):
        controller = Talk(live.controller_address)
        described = controller.describe(ConfigResourceType.BROKER, str(NODE_ID))
        rows.append(neutral_rows(described, live))
        controller.close()
    assert rows[1] == rows[0]


# Each row: the resource, a setting, its value, the operation; both nodes must answer alike.
TRIES: list[tuple[ConfigResourceType, str, str, str | None, Operation]] = [
    (ConfigResourceType.TOPIC, "tried", name, value, operation)
    for name, value, operation in [
        ("retention.ms", "5", Operation.SET),
        ("retention.ms", "-2", Operation.SET),
        ("retention.ms", "soon", Operation.SET),
        ("retention.ms", None, Operation.SET),
        ("retention.ms", None, Operation.DELETE),
        ("retention.ms", "5", Operation.APPEND),
        ("no.such.setting", "5", Operation.SET),
        ("no.such.setting", None, Operation.DELETE),
        ("no.such.setting", "5", Operation.APPEND),
        ("cleanup.policy", "compact", Operation.APPEND),
        ("cleanup.policy", "shred", Operation.APPEND),
        ("cleanup.policy", "delete,compact", Operation.SUBTRACT),
        ("cleanup.policy", "", Operation.SET),
        ("min.compaction.lag.ms", "9223372036854775807", Operation.SET),
        ("max.compaction.lag.ms", "0", Operation.SET),
        ("remote.storage.enable", "true", Operation.SET),
        ("segment.bytes", "1000", Operation.SET),
        ("compression.gzip.level", "0", Operation.SET),
        ("leader.replication.throttled.replicas", "0:1", Operation.SET),
        ("leader.replication.throttled.replicas", "zero", Operation.SET),
    ]
] + [
    (ConfigResourceType.TOPIC, "no-such-topic", "retention.ms", "5", Operation.SET),
    (ConfigResourceType.TOPIC, "", "retention.ms", "5", Operation.SET),
    (ConfigResourceType.TOPIC, "a/b", "retention.ms", "5", Operation.SET),
    (ConfigResourceType.BROKER, "", "message.max.bytes", "3000000", Operation.SET),
    (ConfigResourceType.BROKER, "", "message.max.bytes", None, Operation.DELETE),
    (ConfigResourceType.BROKER, "", "message.max.bytes", "-1", Operation.SET),
    (ConfigResourceType.BROKER, "", "num.partitions", "3", Operation.SET),
    (ConfigResourceType.BROKER, "", "listeners", "PLAINTEXT://127.0.0.1:1", Operation.SET),
    (ConfigResourceType.BROKER, "1", "num.io.threads", "50", Operation.SET),
    (ConfigResourceType.BROKER, "1", "num.io.threads", "3", Operation.SET),
    (ConfigResourceType.BROKER, "1", "num.io.threads", None, Operation.DELETE),
    (ConfigResourceType.BROKER, "1", "ssl.keystore.location", "/k", Operation.SET),
    (ConfigResourceType.BROKER, "1", "min.insync.replicas", "2", Operation.SET),
    (ConfigResourceType.BROKER, "", "min.insync.replicas", None, Operation.DELETE),
    (ConfigResourceType.BROKER, "1", "log.cleaner.threads", "x", Operation.APPEND),
    (ConfigResourceType.BROKER, "1", "cordoned.log.dirs", "/nowhere", Operation.SET),
    (ConfigResourceType.BROKER, "2", "message.max.bytes", "1", Operation.SET),
    (ConfigResourceType.BROKER, "one", "message.max.bytes", "1", Operation.SET),
    (ConfigResourceType.BROKER_LOGGER, "1", "root", "LOUD", Operation.SET),
    (ConfigResourceType.BROKER_LOGGER, "1", "root", None, Operation.DELETE),
    (ConfigResourceType.BROKER_LOGGER, "1", "root", "INFO", Operation.APPEND),
    (ConfigResourceType.BROKER_LOGGER, "1", "no.such.logger", "INFO", Operation.SET),
    (ConfigResourceType.BROKER_LOGGER, "2", "root", "INFO", Operation.SET),
    (ConfigResourceType.BROKER_LOGGER, "1", "root", "INFO", Operation.SET),
    (ConfigResourceType.GROUP, "g", "consumer.session.timeout.ms", "1", Operation.SET),
    (ConfigResourceType.GROUP, "g", "consumer.session.timeout.ms", "50000", Operation.SET),
    (ConfigResourceType.GROUP, "g", "consumer.heartbeat.interval.ms", "14999", Operation.SET),
    (ConfigResourceType.GROUP, "g", "share.auto.offset.reset", "by_duration:PT1H", Operation.SET),
    (ConfigResourceType.GROUP, "g", "share.auto.offset.reset", "whenever", Operation.SET),
    (ConfigResourceType.GROUP, "g", "no.such.setting", "1", Operation.SET),
    (ConfigResourceType.GROUP, "", "consumer.session.timeout.ms", "50000", Operation.SET),
    (ConfigResourceType.CLIENT_METRICS, "m", "interval.ms", "50", Operation.SET),
    (ConfigResourceType.CLIENT_METRICS, "m", "interval.ms", "often", Operation.SET),
    (ConfigResourceType.CLIENT_METRICS, "m", "interval.ms", "500", Operation.SET),
    (ConfigResourceType.CLIENT_METRICS, "m", "match", "client_id=a.*", Operation.SET),
    (ConfigResourceType.CLIENT_METRICS, "m", "match", "colour=blue", Operation.SET),
    (ConfigResourceType.CLIENT_METRICS, "m", "no.such.setting", "1", Operation.SET),
    (ConfigResourceType.CLIENT_METRICS, "", "interval.ms", "500", Operation.SET),
    (ConfigResourceType.UNKNOWN, "x", "y", "z", Operation.SET),
]


def test_changes_are_accepted_and_refused_alike(
    node: LiveBroker, talk: Talk, moldau: LiveMoldau, our_talk: Talk
) -> None:
    for live in (node, moldau):
        live.create_topic("tried")
    theirs, ours = {}, {}
    for one in TRIES:
        theirs[one] = ErrorCode(talk.alter(*one)[0]).name
        ours[one] = ErrorCode(our_talk.alter(*one)[0]).name
    assert ours == theirs


def test_changes_at_run_time_are_described_alike(node: LiveBroker, talk: Talk) -> None:
    """Last in the file: it changes the settings that the other tests describe."""
    kind = ConfigResourceType.BROKER
    assert talk.change(kind, str(NODE_ID), OWN_CHANGES) == (0, None)
    assert talk.change(kind, "", CLUSTER_CHANGES) == (0, None)
    config = our_config(node, CLUSTER_CHANGES, OWN_CHANGES)
    ours = _comparable(describe_broker(config))

    def are_alike() -> bool:
        rows = _comparable(talk.describe(kind, str(NODE_ID)))
        return rows["log.cleaner.backoff.ms"] == ours["log.cleaner.backoff.ms"]

    wait_for(are_alike, "the broker's settings")
    assert ours == _comparable(talk.describe(kind, str(NODE_ID)))
    assert _comparable(describe_broker_defaults(config)) == _comparable(talk.describe(kind, ""))
    theirs = _comparable(talk.describe(ConfigResourceType.TOPIC, TOPIC))
    assert _comparable(describe_topic(TOPIC_CHANGES, config)) == theirs
