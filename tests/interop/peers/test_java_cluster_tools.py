"""Apache's tools for the cluster: features, quorum, API versions, settings of nodes and groups."""

import json
import re
from pathlib import Path

import pytest
from interop.live_broker import CLUSTER_ID, free_ports
from interop.peers.java_tools import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    FEATURES,
    QUORUM,
    JavaTools,
    table,
)
from interop.peers.later import waiting

pytestmark = pytest.mark.interop

# The answer of an Apache Kafka 4.3.1 broker to ApiVersions on a clients' listener.
APACHES_VERSIONS = {
    "Produce(0)": "0 to 13",
    "Fetch(1)": "4 to 18",
    "ListOffsets(2)": "1 to 11",
    "Metadata(3)": "0 to 13",
    "OffsetCommit(8)": "2 to 10",
    "OffsetFetch(9)": "1 to 10",
    "FindCoordinator(10)": "0 to 6",
    "JoinGroup(11)": "0 to 9",
    "Heartbeat(12)": "0 to 4",
    "LeaveGroup(13)": "0 to 5",
    "SyncGroup(14)": "0 to 5",
    "DescribeGroups(15)": "0 to 6",
    "ListGroups(16)": "0 to 5",
    "SaslHandshake(17)": "0 to 1",
    "ApiVersions(18)": "0 to 4",
    "CreateTopics(19)": "2 to 7",
    "DeleteTopics(20)": "1 to 6",
    "DeleteRecords(21)": "0 to 2",
    "InitProducerId(22)": "0 to 5",
    "OffsetForLeaderEpoch(23)": "2 to 4",
    "AddPartitionsToTxn(24)": "0 to 5",
    "AddOffsetsToTxn(25)": "0 to 4",
    "EndTxn(26)": "0 to 5",
    "WriteTxnMarkers(27)": "1 to 2",
    "TxnOffsetCommit(28)": "0 to 5",
    "DescribeAcls(29)": "1 to 3",
    "CreateAcls(30)": "1 to 3",
    "DeleteAcls(31)": "1 to 3",
    "DescribeConfigs(32)": "1 to 4",
    "AlterConfigs(33)": "0 to 2",
    "AlterReplicaLogDirs(34)": "1 to 2",
    "DescribeLogDirs(35)": "1 to 5",
    "SaslAuthenticate(36)": "0 to 2",
    "CreatePartitions(37)": "0 to 3",
    "CreateDelegationToken(38)": "1 to 3",
    "RenewDelegationToken(39)": "1 to 2",
    "ExpireDelegationToken(40)": "1 to 2",
    "DescribeDelegationToken(41)": "1 to 3",
    "DeleteGroups(42)": "0 to 2",
    "ElectLeaders(43)": "0 to 2",
    "IncrementalAlterConfigs(44)": "0 to 1",
    "AlterPartitionReassignments(45)": "0 to 1",
    "ListPartitionReassignments(46)": "0",
    "OffsetDelete(47)": "0",
    "DescribeClientQuotas(48)": "0 to 1",
    "AlterClientQuotas(49)": "0 to 1",
    "DescribeUserScramCredentials(50)": "0",
    "AlterUserScramCredentials(51)": "0",
    "DescribeQuorum(55)": "0 to 2",
    "UpdateFeatures(57)": "0 to 2",
    "DescribeCluster(60)": "0 to 2",
    "DescribeProducers(61)": "0",
    "UnregisterBroker(64)": "0",
    "DescribeTransactions(65)": "0",
    "ListTransactions(66)": "0 to 2",
    "ConsumerGroupHeartbeat(68)": "0 to 1",
    "ConsumerGroupDescribe(69)": "0 to 1",
    "ListConfigResources(74)": "0 to 1",
    "DescribeTopicPartitions(75)": "0",
    "ShareGroupHeartbeat(76)": "1",
    "ShareGroupDescribe(77)": "1",
    "ShareFetch(78)": "1 to 2",
    "ShareAcknowledge(79)": "1 to 2",
    "AddRaftVoter(80)": "0 to 1",
    "RemoveRaftVoter(81)": "0",
    "InitializeShareGroupState(83)": "0",
    "ReadShareGroupState(84)": "0",
    "WriteShareGroupState(85)": "0 to 1",
    "DeleteShareGroupState(86)": "0",
    "ReadShareGroupStateSummary(87)": "0 to 1",
    "StreamsGroupHeartbeat(88)": "0",
    "StreamsGroupDescribe(89)": "0",
    "DescribeShareGroupOffsets(90)": "0 to 1",
    "AlterShareGroupOffsets(91)": "0",
    "DeleteShareGroupOffsets(92)": "0",
}

FEATURE_VERSIONS = {
    "eligible.leader.replicas.version": ("0", "1", "1"),
    "group.version": ("0", "1", "1"),
    "kraft.version": ("0", "1", "1"),
    "metadata.version": ("3.3-IV3", "4.3-IV0", "4.3-IV0"),
    "share.version": ("0", "1", "1"),
    "streams.version": ("0", "1", "1"),
    "transaction.version": ("0", "2", "2"),
}


@pytest.fixture
def controller(tools: JavaTools) -> str:
    """The address of the controller's listener."""
    if tools.server.node is None:
        pytest.skip("the controller's address is only known for a node that this run started")
    return tools.server.node.controller_address


def test_the_api_versions_are_apaches(tools: JavaTools) -> None:
    output = tools.run(API_VERSIONS)
    assert output.startswith(f"{tools.server.address} (id: 1 rack: null isFenced: false) -> (")
    form = r"^\t(\w+\(\d+\)): (\d+(?: to \d+)?) \[usable: \d+\]"
    answered = dict(re.findall(form, output, re.MULTILINE))
    expected = dict(APACHES_VERSIONS)
    if tools.server.is_moldau:
        for name in waiting("api"):
            assert name not in answered, f"{name} is served: take it out of the table"
            del expected[name]
    assert answered == expected


def test_the_cluster_is_named_and_its_endpoints_listed(tools: JavaTools) -> None:
    address = ["--bootstrap-server", tools.server.address]
    named = tools.run_alone(CLUSTER, "cluster-id", *address)
    assert re.fullmatch(r"Cluster ID: \S{22}\n", named)
    if tools.server.node is not None:
        assert named == f"Cluster ID: {CLUSTER_ID}\n"
    host, port = tools.server.address.split(":")
    (row,) = table(tools.run_alone(CLUSTER, "list-endpoints", *address))
    assert row == {
        "ID": "1",
        "HOST": host,
        "PORT": port,
        "RACK": "null",
        "STATE": "unfenced",
        "ENDPOINT_TYPE": "broker",
    }


def test_the_controllers_endpoints_are_listed(tools: JavaTools, controller: str) -> None:
    host, port = controller.split(":")
    (row,) = table(tools.run_alone(CLUSTER, "list-endpoints", "--bootstrap-controller", controller))
    assert row == {
        "ID": "1",
        "HOST": host,
        "PORT": port,
        "RACK": "null",
        "ENDPOINT_TYPE": "controller",
    }


def features(output: str) -> dict[str, tuple[str, ...]]:
    form = r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+"
    form += r"FinalizedVersionLevel: (\S+)\s+Epoch: \d+"
    lines = output.splitlines()
    rows = [re.fullmatch(form, line.rstrip()) for line in lines]
    return {row[1]: row.groups()[1:] for row in rows if row is not None}


def test_the_features_are_described(tools: JavaTools) -> None:
    expected = dict(FEATURE_VERSIONS)
    if tools.server.is_moldau:
        expected = {name: expected[name] for name in expected.keys() - waiting("feature")}
    assert features(tools.run(FEATURES, "describe")) == expected


def test_the_controller_describes_the_features_too(tools: JavaTools, controller: str) -> None:
    answered = tools.run_alone(FEATURES, "--bootstrap-controller", controller, "describe")
    assert features(answered) == features(tools.run(FEATURES, "describe"))


def test_features_are_upgraded_and_downgraded_in_a_dry_run(tools: JavaTools) -> None:
    feature = "eligible.leader.replicas.version"
    down = tools.run(FEATURES, "downgrade", "--feature", f"{feature}=0", "--dry-run")
    assert down == f"{feature} can be downgraded to 0.\n"
    up = tools.run(FEATURES, "upgrade", "--feature", "metadata.version=30", "--dry-run")
    assert up == "metadata.version can be upgraded to 30.\n"
    said = tools.refused(FEATURES, "upgrade", "--feature", f"{feature}=9")
    assert f"Could not upgrade {feature} to 9." in said
    assert "1 out of 1 operation(s) failed." in said
    assert features(tools.run(FEATURES, "describe"))[feature] == ("0", "1", "1")


def quorum_status(output: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):\s+(.*)$", output, re.MULTILINE))


def test_the_quorum_has_one_voter_which_leads(tools: JavaTools) -> None:
    status = quorum_status(tools.run(QUORUM, "describe", "--status"))
    assert re.fullmatch(r"\S{22}", status["ClusterId"])
    assert status["LeaderId"] == "1"
    assert int(status["LeaderEpoch"]) >= 1
    assert int(status["HighWatermark"]) > 0
    assert (status["MaxFollowerLag"], status["MaxFollowerLagTimeMs"]) == ("0", "0")
    (voter,) = json.loads(status["CurrentVoters"])
    assert voter["id"] == 1
    assert re.fullmatch(r"\S{22}", voter["directoryId"])
    if tools.server.node is not None:
        assert voter["endpoints"] == [f"CONTROLLER://{tools.server.node.controller_address}"]
    assert status["CurrentObservers"] == "[]"

    (row,) = table(tools.run(QUORUM, "describe", "--replication"))
    assert row["NodeId"] == "1"
    assert row["DirectoryId"] == voter["directoryId"]
    assert row["Status"] == "Leader"
    assert row["Lag"] == "0"
    assert int(row["LogEndOffset"]) >= int(status["HighWatermark"])
    assert row["LastFetchTimestamp"] == row["LastCaughtUpTimestamp"]
    readable = tools.run(QUORUM, "describe", "--replication", "--human-readable")
    assert re.search(r"\d+ ms ago\s+\d+ ms ago\s+Leader", readable)


def test_the_controller_describes_the_quorum_too(tools: JavaTools, controller: str) -> None:
    direct = tools.run_alone(QUORUM, "--bootstrap-controller", controller, "describe", "--status")
    forwarded = tools.run(QUORUM, "describe", "--status")
    for status in (direct, forwarded):
        assert quorum_status(status)["LeaderId"] == "1"
    assert quorum_status(direct)["CurrentVoters"] == quorum_status(forwarded)["CurrentVoters"]


DIRECTORY_ID = "AAAAAAAAAAAAAAAAAAAAAg"


def new_controller(folder: Path, node_id: int, cluster_id: str) -> Path:
    """The settings of a formatted controller that does not run."""
    logs = folder / f"logs-{node_id}"
    logs.mkdir()
    properties = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": DIRECTORY_ID,
    }
    written = "".join(f"{name}={value}\n" for name, value in properties.items())
    (logs / "meta.properties").write_text(written)
    settings = {
        "process.roles": "controller",
        "node.id": str(node_id),
        "log.dirs": str(logs),
        "listeners": f"CONTROLLER://127.0.0.1:{free_ports(1)[0]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
    }
    path = folder / f"controller-{node_id}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def addresses(tools: JavaTools, controller: str) -> list[list[str]]:
    """Both ways into the cluster."""
    return [["--bootstrap-server", tools.server.address], ["--bootstrap-controller", controller]]


def refusal(tools: JavaTools, *arguments: str) -> str:
    run = tools.apache.run_tool(QUORUM, *arguments)
    assert run.status == 1, run
    return run.output + run.errors


def test_a_controller_that_cannot_be_reached_is_not_added(
    tools: JavaTools, controller: str, tmp_path: Path
) -> None:
    """Another one at each attempt: the leader leaves one that failed alone for a moment."""
    cluster_id = quorum_status(tools.run(QUORUM, "describe", "--status"))["ClusterId"]
    for node_id, address in enumerate(addresses(tools, controller), 7):
        settings = str(new_controller(tmp_path, node_id, cluster_id))
        said = refusal(tools, *address, "--command-config", settings, "add-controller")
        assert (
            "org.apache.kafka.common.errors.TimeoutException: Aborted add voter operation for "
            "since API_VERSIONS returned an error BROKER_NOT_AVAILABLE"
        ) in said


def test_a_controller_is_added_only_once(tools: JavaTools, controller: str) -> None:
    if tools.server.node is None:
        pytest.skip("needs the server's own settings")
    own = str(tools.server.node.properties)
    status = quorum_status(tools.run(QUORUM, "describe", "--status"))
    (voter,) = json.loads(status["CurrentVoters"])
    key = f"ReplicaKey(id=1, directoryId={voter['directoryId']})"
    for address in addresses(tools, controller):
        said = refusal(tools, *address, "--command-config", own, "add-controller")
        assert (
            "org.apache.kafka.common.errors.DuplicateVoterException: The voter id for "
            f"{key} is already part of the set of voters [{key}]."
        ) in said


def test_a_controller_that_is_not_a_voter_is_not_removed(tools: JavaTools, controller: str) -> None:
    status = quorum_status(tools.run(QUORUM, "describe", "--status"))
    (voter,) = json.loads(status["CurrentVoters"])
    own = f"ReplicaKey(id=1, directoryId={voter['directoryId']})"
    removals = {
        ("7", DIRECTORY_ID): f"ReplicaKey(id=7, directoryId={DIRECTORY_ID})",
        ("1", DIRECTORY_ID): f"ReplicaKey(id=1, directoryId={DIRECTORY_ID})",
        # The last one stays.
        ("1", voter["directoryId"]): own,
    }
    for address in addresses(tools, controller):
        for (node_id, directory_id), key in removals.items():
            removal = ["remove-controller", "--controller-id", node_id]
            said = refusal(tools, *address, *removal, "--controller-directory-id", directory_id)
            assert (
                "org.apache.kafka.common.errors.VoterNotFoundException: Cannot remove voter "
                f"{key} from the set of voters [{own}]"
            ) in said


def test_a_brokers_settings_change_while_it_runs(tools: JavaTools) -> None:
    entity = ["--entity-type", "brokers", "--entity-name", "1"]
    setting = "log.cleaner.threads"
    before = tools.run(CONFIGS, *entity, "--describe")
    assert before == "Dynamic configs for broker 1 are:\n"
    done = "Completed updating config for broker 1.\n"
    assert tools.run(CONFIGS, *entity, "--alter", "--add-config", f"{setting}=2") == done
    sources = f"{{DYNAMIC_BROKER_CONFIG:{setting}=2, DEFAULT_CONFIG:{setting}=1}}"
    line = f"  {setting}=2 sensitive=false synonyms={sources}"
    assert tools.run(CONFIGS, *entity, "--describe").splitlines()[1:] == [line]
    assert tools.run(CONFIGS, *entity, "--alter", "--delete-config", setting) == done
    assert tools.run(CONFIGS, *entity, "--describe") == before
    fixed = tools.refused(CONFIGS, *entity, "--alter", "--add-config", "node.id=3")
    assert re.search(r"InvalidRequestException: .*node\.id", fixed)


def test_the_default_of_all_brokers_changes_while_they_run(tools: JavaTools) -> None:
    entity = ["--entity-type", "brokers", "--entity-default"]
    head = "Default configs for brokers in the cluster are:"
    least = "  min.insync.replicas=1 sensitive=false synonyms="
    least += "{DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1}"
    assert tools.run(CONFIGS, *entity, "--describe").splitlines() == [head, least]
    done = "Completed updating default config for brokers in the cluster.\n"
    setting = "log.retention.ms=3600000"
    assert tools.run(CONFIGS, *entity, "--alter", "--add-config", setting) == done
    assert set(tools.run(CONFIGS, *entity, "--describe").splitlines()) == {
        head,
        least,
        f"  {setting} sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{setting}}}",
    }
    assert tools.run(CONFIGS, *entity, "--alter", "--delete-config", "log.retention.ms") == done
    assert tools.run(CONFIGS, *entity, "--describe").splitlines() == [head, least]


def test_all_settings_of_a_broker_are_described(tools: JavaTools) -> None:
    entity = ["--entity-type", "brokers", "--entity-name", "1"]
    head, *lines = tools.run(CONFIGS, *entity, "--describe", "--all").splitlines()
    assert head == "All configs for broker 1 are:"
    shown = {line.strip().split("=", 1)[0]: line.strip() for line in lines}
    assert len(shown) == len(lines)
    assert shown["num.partitions"] == (
        "num.partitions=4 sensitive=false synonyms="
        "{STATIC_BROKER_CONFIG:num.partitions=4, DEFAULT_CONFIG:num.partitions=1}"
    )
    assert shown["log.retention.hours"] == (
        "log.retention.hours=168 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.hours=168}"
    )
    assert shown["log.retention.ms"] == "log.retention.ms=null sensitive=false synonyms={}"
    assert shown["ssl.keystore.password"].startswith("ssl.keystore.password=null sensitive=true")


def test_the_controller_describes_a_brokers_settings(tools: JavaTools, controller: str) -> None:
    address = ["--bootstrap-controller", controller]
    entity = ["--entity-type", "brokers", "--entity-name", "1", "--describe"]
    assert tools.run_alone(CONFIGS, *address, *entity) == "Dynamic configs for broker 1 are:\n"


def test_a_groups_settings_change(tools: JavaTools, name: str) -> None:
    entity = ["--entity-type", "groups", "--entity-name", name]
    setting = "consumer.session.timeout.ms"
    done = f"Completed updating config for group {name}.\n"
    assert tools.run(CONFIGS, *entity, "--alter", "--add-config", f"{setting}=50000") == done
    own = f"DYNAMIC_GROUP_CONFIG:{setting}=50000"
    sources = f"{{{own}, DEFAULT_CONFIG:group.{setting}=45000}}"
    assert tools.run(CONFIGS, *entity, "--describe").splitlines() == [
        f"Dynamic configs for group {name} are:",
        f"  {setting}=50000 sensitive=false synonyms={sources}",
    ]
    every = tools.run(CONFIGS, "--entity-type", "groups", "--describe")
    assert f"Dynamic configs for group {name} are:" in every
    assert tools.run(CONFIGS, *entity, "--alter", "--delete-config", setting) == done
    assert tools.run(CONFIGS, *entity, "--describe").splitlines()[1:] == []


def test_a_loggers_level_changes(tools: JavaTools) -> None:
    entity = ["--entity-type", "broker-loggers", "--entity-name", "1"]
    head, *lines = tools.run(CONFIGS, *entity, "--describe").splitlines()
    assert head == "Dynamic configs for broker-logger 1 are:"
    levels = dict(line.strip().split(" ", 1)[0].split("=") for line in lines)
    assert levels["root"] in {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
    logger = next(name for name in sorted(levels) if name != "root")
    done = "Completed updating config for broker-logger 1.\n"
    assert tools.run(CONFIGS, *entity, "--alter", "--add-config", f"{logger}=DEBUG") == done
    changed = tools.run(CONFIGS, *entity, "--describe").splitlines()
    assert f"  {logger}=DEBUG sensitive=false synonyms={{}}" in changed
    assert tools.run(CONFIGS, *entity, "--alter", "--delete-config", logger) == done
    assert tools.run(CONFIGS, *entity, "--describe").splitlines() == [head, *lines]
