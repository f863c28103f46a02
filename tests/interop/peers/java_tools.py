"""Apache Kafka's command line tools against the system under test, in the oracle's one JVM."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from interop.apache import LOGGING, SMALL_JVM, ApacheOracle, ToolRun, require_tool
from interop.peers.servers import Server

PACKAGE = "org.apache.kafka.tools"
TOPICS = f"{PACKAGE}.TopicCommand"
CONSOLE_PRODUCER = f"{PACKAGE}.ConsoleProducer"
CONSOLE_CONSUMER = f"{PACKAGE}.consumer.ConsoleConsumer"
CONSUMER_GROUPS = f"{PACKAGE}.consumer.group.ConsumerGroupCommand"
GROUPS = f"{PACKAGE}.GroupsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = f"{PACKAGE}.GetOffsetShell"
DELETE_RECORDS = f"{PACKAGE}.DeleteRecordsCommand"
LOG_DIRS = f"{PACKAGE}.LogDirsCommand"
LEADER_ELECTION = f"{PACKAGE}.LeaderElectionCommand"
FEATURES = f"{PACKAGE}.FeatureCommand"
QUORUM = f"{PACKAGE}.MetadataQuorumCommand"
CLUSTER = f"{PACKAGE}.ClusterTool"
API_VERSIONS = f"{PACKAGE}.BrokerApiVersionsCommand"
TRANSACTIONS = f"{PACKAGE}.TransactionsCommand"
DUMP = f"{PACKAGE}.DumpLogSegments"
STORAGE = "kafka.tools.StorageTool"

JVM_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class JavaTools:
    """Runs tools; each method implies the expected exit status."""

    apache: ApacheOracle
    server: Server

    def run(self, tool: str, *arguments: str, stdin: bytes = b"") -> str:
        """The output of a tool that succeeds."""
        run = self.attempt(tool, *arguments, stdin=stdin)
        assert run.status == 0, f"{tool} {arguments}: {run}"
        return run.output

    def refused(self, tool: str, *arguments: str) -> str:
        """The error output of a tool that fails."""
        run = self.attempt(tool, *arguments)
        assert run.status == 1, f"{tool} {arguments}: {run}"
        return run.output + run.errors

    def attempt(self, tool: str, *arguments: str, stdin: bytes = b"") -> ToolRun:
        """A run against the server's client port, whatever its exit status."""
        address = ["--bootstrap-server", self.server.address]
        return self.apache.run_tool(tool, *address, *arguments, stdin=stdin)

    def run_alone(self, tool: str, *arguments: str) -> str:
        """The output of a tool that needs no address, or has its own."""
        run = self.apache.run_tool(tool, *arguments)
        assert run.status == 0, f"{tool} {arguments}: {run}"
        return run.output

    def in_own_jvm(self, tool: str, *arguments: str) -> list[str]:
        """The lines of a tool that only prints at its JVM's exit."""
        command = self.command(tool, ["--bootstrap-server", self.server.address, *arguments])
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=JVM_TIMEOUT_S, check=False
        )
        assert run.returncode == 0, run
        return run.stdout.splitlines()

    def command(self, tool: str, arguments: Sequence[str]) -> list[str]:
        """The command that runs a tool in a JVM of its own."""
        command = [require_tool("java"), *SMALL_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
        return [*command, "-cp", f"{self.apache.jar_folder}/*", tool, *arguments]


def table(output: str) -> list[dict[str, str]]:
    """The rows of a printed table by column name; its cells contain no blanks."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    heads = lines[0]
    return [dict(zip(heads, row, strict=True)) for row in lines[1:]]
