"""Apache's kafka-features against a live Apache Kafka and against Moldau: the same lines, whatever
is asked.
"""

from pathlib import Path

import pytest
from interop.apache import ApacheOracle
from interop.live_broker import LiveNode
from interop.node_pair import running_pairs

pytestmark = pytest.mark.interop

FEATURES = "org.apache.kafka.tools.FeatureCommand"


def told(apache: ApacheOracle, node: LiveNode, *arguments: str) -> tuple[int, str]:
    """What the tool prints, but for epochs, which are offsets of each cluster's own log."""
    run = apache.run_tool(FEATURES, "--bootstrap-server", node.address, *arguments)
    lines = [line.partition("Epoch:")[0] for line in (run.output + run.errors).splitlines()]
    return run.status, "\n".join(lines)


# One after the other: each begins with what those before it have left.
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


@pytest.mark.parametrize(
    ("commands", "settings"),
    [
        pytest.param(COMMANDS, {}, id="released"),
        pytest.param(
            UNSTABLE_COMMANDS, {"unstable.feature.versions.enable": "true"}, id="unstable"
        ),
    ],
)
def test_kafka_features_prints_the_same(
    apache: ApacheOracle, tmp_path: Path, commands: list[str], settings: dict[str, str]
) -> None:
    differing = {}
    with running_pairs(apache, tmp_path, settings) as pairs:
        for place, command in enumerate(commands):
            theirs, ours = (told(apache, side.node, *command.split()) for side in pairs.brokers)
            if theirs != ours:
                differing[place, command] = theirs, ours
    assert differing == {}
