"""Quorums of Apache and Moldau voters, with a broker of each kind: every voter leads in turn, the
others follow it to the byte, and brokers are administered under a controller of the other kind.
"""

import re
from collections.abc import Iterator

import pytest
from cli.kafka_command import KafkaCommand
from interop.apache import ApacheOracle
from interop.mixed_cluster import APACHE, BROKER, CONTROLLER, MOLDAU, MixedCluster
from interop.mixed_tools import MixedTools
from interop.peers.java_tools import CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS
from support.running_node import fresh_name
from support.waiting import wait_for

pytestmark = pytest.mark.interop

# Voter 2 is of the other kind.
VOTERS = {
    "one-moldau": (APACHE, MOLDAU, APACHE),
    "one-apache": (MOLDAU, APACHE, MOLDAU),
}
BROKERS = {4: (MOLDAU, BROKER), 5: (APACHE, BROKER)}
SETTINGS = {
    # Nothing is written without a reason: descriptions can be compared.
    "metadata.max.idle.interval.ms": "0",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
SETTINGS_OF_TOPICS = frozenset({"segment.ms=70000", "flush.ms=9"})
RECORDS = [f"record {number}" for number in range(200)]


@pytest.fixture(scope="module", params=VOTERS)
def tools(
    request: pytest.FixtureRequest, apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedTools]:
    kinds = {node_id: (kind, CONTROLLER) for node_id, kind in enumerate(VOTERS[request.param], 1)}
    folder = tmp_path_factory.mktemp(request.param)
    with MixedCluster(apache, folder, kinds | BROKERS, SETTINGS) as cluster:
        cluster.format()
        cluster.start()
        yield MixedTools(apache, cluster)


def test_each_voter_leads_in_turn(tools: MixedTools) -> None:
    """Elected by killing the one before, which had appended more than the others."""
    cluster = tools.cluster
    first = cluster.wait_for_leader()
    turns = [first, *(each for each in (1, 3, 2) if each != first)]
    for number, leader in enumerate(turns):
        if number > 0:
            cut = cluster.elect(leader)
            change(tools, f"without-{turns[number - 1]}")
            assert cluster.has_logged(turns[number - 1], cut)
            cluster.start(turns[number - 1])
            assert not any(cluster.has_logged(node_id, cut) for node_id in cluster.running)
        assert cluster.wait_for_leader() == leader
        change(tools, f"led-by-{leader}")
        for node_id in cluster.brokers:
            # Apache's brokers have a former controller describe the quorum, which refuses, until
            # another request shows them that it is no longer active.
            cluster.commit(at=node_id)
        tools.check_descriptions()
    tools.check_logs()


def change(tools: MixedTools, topic: str) -> None:
    """Through both brokers and the leader itself."""
    cluster = tools.cluster
    for node_id in BROKERS:
        name = f"{topic}-at-{node_id}"
        tools.run(node_id, TOPICS, "--create", "--topic", name, "--partitions", "2")
        wait_until_described(tools, name, 2)
        tools.run(node_id, TOPICS, "--alter", "--topic", name, "--partitions", "3")
        wait_until_described(tools, name, 3)
    everything = ["--entity-type", "brokers", "--entity-default"]
    changed = [*everything, "--alter", "--add-config", f"log.retention.ms=86400{len(topic)}"]
    tools.run(cluster.wait_for_leader(), CONFIGS, *changed)


def wait_until_described(
    tools: MixedTools, topic: str, partitions: int, settings: frozenset[str] = frozenset()
) -> None:
    """By both brokers, each of which leads partitions of the topic. Those of SETTINGS_OF_TOPICS
    that are not in `settings` are not set.
    """

    def is_described() -> bool:
        for node_id in BROKERS:
            run = tools.attempt(node_id, TOPICS, "--describe", "--topic", topic)
            head = re.search(r"PartitionCount: (\d+)\t.*\tConfigs: (\S*)", run.output)
            leaders = set(re.findall(r"\tLeader: (\S+)", run.output))
            if head is None or int(head[1]) != partitions or leaders != set(map(str, BROKERS)):
                return False
            if settings != SETTINGS_OF_TOPICS.intersection(head[2].split(",")):
                return False
        return True

    wait_for(is_described, f"{topic} with {partitions} partitions and {settings}")


def wait_until_gone(tools: MixedTools, topic: str) -> None:
    def is_gone() -> bool:
        lists = [tools.run(node_id, TOPICS, "--list").splitlines() for node_id in BROKERS]
        return not any(topic in names for names in lists)

    wait_for(is_gone, f"the end of {topic}")


@pytest.fixture
def broker(tools: MixedTools) -> int:
    """While voter 2 leads: the broker that is of the same kind as the other voters."""
    cluster = tools.cluster
    leader = cluster.wait_for_leader()
    if leader != 2:
        cluster.elect(2)
        cluster.start(leader)
    (found,) = (each for each in BROKERS if cluster.nodes[each].kind != cluster.nodes[2].kind)
    return found


def test_a_broker_serves_apaches_tools_under_the_other_controller(
    tools: MixedTools, broker: int
) -> None:
    topic = fresh_name("by-apaches-tools")
    created = ["--create", "--topic", topic, "--partitions", "2", "--config", "segment.ms=70000"]
    created += ["--config", "flush.ms=9"]
    assert tools.run(broker, TOPICS, *created) == f"Created topic {topic}.\n"
    wait_until_described(tools, topic, 2, SETTINGS_OF_TOPICS)
    tools.run(broker, TOPICS, "--alter", "--topic", topic, "--partitions", "4")
    entity = ["--entity-type", "topics", "--entity-name", topic]
    tools.run(broker, CONFIGS, *entity, "--alter", "--delete-config", "segment.ms")
    wait_until_described(tools, topic, 4, frozenset({"flush.ms=9"}))
    changed = ["--add-config", "segment.ms=70000", "--delete-config", "flush.ms"]
    tools.run(broker, CONFIGS, *entity, "--alter", *changed)
    wait_until_described(tools, topic, 4, frozenset({"segment.ms=70000"}))
    own = ["--entity-type", "brokers", "--entity-name", str(broker)]
    tools.run(broker, CONFIGS, *own, "--alter", "--add-config", "message.max.bytes=2000000")
    setting = "message.max.bytes=2000000 sensitive=false"
    wait_for(lambda: setting in tools.run(broker, CONFIGS, *own, "--describe"), setting)

    lines = "".join(f"{record}\n" for record in RECORDS).encode()
    tools.run(broker, CONSOLE_PRODUCER, "--topic", topic, stdin=lines)
    consumed = ["--topic", topic, "--group", fresh_name("group"), "--from-beginning"]
    consumed += ["--max-messages", str(len(RECORDS))]
    assert sorted(tools.run(broker, CONSOLE_CONSUMER, *consumed).splitlines()) == sorted(RECORDS)

    tools.run(broker, CONFIGS, *own, "--alter", "--delete-config", "message.max.bytes")
    tools.run(broker, TOPICS, "--delete", "--topic", topic)
    wait_until_gone(tools, topic)


def test_a_broker_serves_our_command_line_under_the_other_controller(
    tools: MixedTools, broker: int
) -> None:
    moldau = KafkaCommand(tools.cluster.nodes[broker].address)
    topic = fresh_name("by-moldau")
    moldau("topics", "create", topic, "--partitions", 2, "--config", "segment.ms=70000")
    wait_until_described(tools, topic, 2, frozenset({"segment.ms=70000"}))
    moldau("topics", "alter", topic, "--partitions", 4)
    moldau("topics", "alter", topic, "--config", "flush.ms=9", "--delete-config", "segment.ms")
    wait_until_described(tools, topic, 4, frozenset({"flush.ms=9"}))
    moldau.fill(topic, RECORDS)
    for node_id in BROKERS:
        other = KafkaCommand(tools.cluster.nodes[node_id].address)
        consumed = other("consume", topic).lines
        assert sorted(consumed) == sorted(RECORDS)
    assert moldau.json("cluster", "quorum")["leaderId"] == 2
    moldau("topics", "delete", topic, "--yes")
    wait_until_gone(tools, topic)
