"""Apache's tools against a live Apache Kafka and against Moldau print the same lines for all
commands, and above all for refused ones.
"""

import re
from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.live_broker import LiveNode
from interop.node_pair import running_pairs
from interop.peers.java_tools import CONFIGS, CONSUMER_GROUPS, FEATURES, TOPICS

pytestmark = pytest.mark.interop

STACK = re.compile(r"\s+at |\s+\.\.\. \d+ more")


def printed(apache: ApacheOracle, node: LiveNode, tool: str, command: str) -> tuple[int, list[str]]:
    """The tool's output without epochs, which are offsets of each cluster's own log, and without
    addresses, times and places in Java's code.
    """
    run = apache.run_tool(tool, "--bootstrap-server", node.address, *command.split())
    lines = (run.output + run.errors).replace(node.address, "ADDRESS").splitlines()
    lines = [line.partition("Epoch:")[0] for line in lines if not STACK.match(line)]
    return run.status, [re.sub(r"\[\d{4}-\d\d-\d\d [\d:,]+\]", "[TIME]", line) for line in lines]


# In sequence: each command sees the effects of those before it.
COMMANDS = [
    "describe",
    "upgrade --release-version 4.3",
    "upgrade --release-version 4.3-IV0",
    "upgrade --release-version 4.9",
    "upgrade --release-version 3.0",
    "upgrade --metadata 4.3-IV0",
    "upgrade --metadata 4.2",
    "upgrade --metadata nonsense",
    "upgrade --feature metadata.version=30",
    "upgrade --feature metadata.version=99",
    "upgrade --feature group.version=1",
    "upgrade --feature group.version=9",
    "upgrade --feature no.such=1",
    "upgrade --feature group.version",
    "upgrade --feature group.version=one",
    "upgrade",
    "upgrade --dry-run --feature share.version=0",
    "downgrade --feature share.version=0 --dry-run",
    "downgrade --feature share.version=0",
    "describe",
    "upgrade --feature share.version=1",
    "downgrade --feature transaction.version=1",
    "downgrade --feature transaction.version=3",
    "downgrade --feature group.version=9",
    "downgrade --feature eligible.leader.replicas.version=0",
    "downgrade --release-version 4.2",
    "downgrade --release-version 4.2 --dry-run",
    "downgrade --metadata 3.9 --unsafe",
    "downgrade --metadata 1.0",
    "downgrade --feature metadata.version=1 --unsafe",
    "disable --feature streams.version",
    "disable --feature streams.version --unsafe",
    "disable --feature metadata.version",
    "disable --feature kraft.version",
    "disable --feature no.such",
    "describe",
    "upgrade --release-version 4.3",
    "describe",
]


UNSTABLE_COMMANDS = [
    "describe",
    "upgrade --release-version 4.4",
    "upgrade --release-version 4.4-IV0",
    "upgrade --metadata 4.4-IV0 --dry-run",
    "upgrade --feature metadata.version=31",
    "describe",
    "upgrade --feature metadata.version=32",
    "downgrade --metadata 4.3-IV0",
    "describe",
]


# controller.quorum.voters: the quorum begins at kraft.version 0.
STATIC_VOTERS_COMMANDS = [
    "describe",
    "upgrade --feature kraft.version=2",
    "upgrade --feature kraft.version=1 --dry-run",
    "describe",
    "upgrade --release-version 4.3",
    "describe",
    "upgrade --feature kraft.version=1",
    "downgrade --feature kraft.version=0",
]


@pytest.mark.parametrize(
    ("commands", "settings"),
    [
        pytest.param(COMMANDS, {}, id="released"),
        pytest.param(
            UNSTABLE_COMMANDS, {"unstable.feature.versions.enable": "true"}, id="unstable"
        ),
        pytest.param(STATIC_VOTERS_COMMANDS, {}, id="static voters"),
    ],
)
def test_kafka_features_prints_the_same(
    apache: ApacheOracle, tmp_path: Path, commands: list[str], settings: dict[str, str]
) -> None:
    differing = {}
    static = commands is STATIC_VOTERS_COMMANDS
    with running_pairs(apache, tmp_path, settings, static_voters=static) as pairs:
        for place, command in enumerate(commands):
            theirs, ours = (printed(apache, side.node, FEATURES, command) for side in pairs.brokers)
            if theirs != ours:
                differing[place, command] = theirs, ours
    assert differing == {}


REFUSED = [
    (TOPICS, "--describe --topic missing"),
    (TOPICS, "--delete --topic missing"),
    (TOPICS, "--create --topic a/b"),
    (TOPICS, "--create --topic t --replication-factor 2"),
    (TOPICS, "--create --topic t --config no.such=1"),
    (TOPICS, "--create --topic t --config retention.ms=soon"),
    (TOPICS, "--alter --topic missing --partitions 3"),
    (CONFIGS, "--entity-type topics --entity-name missing --alter --add-config retention.ms=1"),
    (CONFIGS, "--entity-type topics --entity-name missing --describe"),
    (CONFIGS, "--entity-type brokers --entity-name 1 --alter --add-config node.id=7"),
    (CONFIGS, "--entity-type brokers --entity-name 1 --alter --add-config num.io.threads=99"),
    (CONFIGS, "--entity-type brokers --entity-default --alter --add-config listeners=X://:1"),
    (CONFIGS, "--entity-type groups --entity-name g --alter --add-config no.such=1"),
    (CONFIGS, "--entity-type client-metrics --entity-name m --alter --add-config interval.ms=1"),
    (CONSUMER_GROUPS, "--describe --group missing"),
    (CONSUMER_GROUPS, "--describe --group missing --members"),
    (CONSUMER_GROUPS, "--describe --group missing --state"),
    (CONSUMER_GROUPS, "--delete --group missing"),
    (CONSUMER_GROUPS, "--delete-offsets --group missing --topic missing"),
    (CONSUMER_GROUPS, "--reset-offsets --group missing --topic missing --to-earliest --dry-run"),
]


def test_refusals_are_printed_the_same(apache: ApacheOracle, tmp_path: Path) -> None:
    differing = {}
    with running_pairs(apache, tmp_path) as pairs:
        for tool, command in REFUSED:
            theirs, ours = (printed(apache, side.node, tool, command) for side in pairs.brokers)
            if theirs != ours:
                differing[command] = theirs, ours
    assert differing == {}
