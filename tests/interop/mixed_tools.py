"""Apache's command line tools at the nodes of a mixed cluster, with their view of the quorum and of
its log in a form that can be compared.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from interop.apache import ApacheOracle, ToolRun
from interop.dump import dump
from interop.live_broker import CLUSTER_ID
from interop.mixed_cluster import BROKER, MixedCluster
from interop.peers.java_tools import QUORUM, table
from support.waiting import wait_for

# Lines of the dump: a batch and a record.
NUMBERED = re.compile(r"(?:baseOffset|\| offset): (\d+) ")
# Depends on where a segment begins.
POSITION = re.compile(r" position: \d+")
TIMES = ("Fetch", "CaughtUp")

Lines = dict[int, list[str]]


@dataclass(frozen=True, slots=True)
class MixedTools:
    apache: ApacheOracle
    cluster: MixedCluster

    def run(self, node_id: int, tool: str, *arguments: str, stdin: bytes = b"") -> str:
        """The output of a tool that succeeds at this node."""
        run = self.attempt(node_id, tool, *arguments, stdin=stdin)
        assert run.status == 0, (node_id, tool, arguments, run)
        return run.output

    def attempt(self, node_id: int, tool: str, *arguments: str, stdin: bytes = b"") -> ToolRun:
        node = self.cluster.nodes[node_id]
        option = "--bootstrap-server" if node.role == BROKER else "--bootstrap-controller"
        return self.apache.run_tool(tool, option, node.address, *arguments, stdin=stdin)

    # The quorum

    def check_descriptions(self) -> None:
        """Every running node describes the quorum alike, and all replicas have the whole log, once
        nodes that have just started are registered.
        """
        self.cluster.wait_until_whole()
        difference = ""

        def is_described() -> bool:
            nonlocal difference
            expected = self._expected_status(), self._expected_replication()
            for node_id in self.cluster.running:
                described = self._status(node_id), self._replication(node_id)
                if described != expected:
                    difference = f"node {node_id} to describe {expected}, not {described}"
                    return False
            return True

        wait_for(is_described, lambda: difference)

    def _status(self, node_id: int) -> dict[str, Any]:
        lines = self.run(node_id, QUORUM, "describe", "--status").splitlines()
        status: dict[str, Any] = {}
        for line in filter(None, lines):
            name, _, value = line.partition(":")
            is_list = value.strip().startswith("[")
            status[name] = in_order(json.loads(value)) if is_list else value.strip()
        assert int(status.pop("MaxFollowerLagTimeMs")) >= 0
        return status

    def _expected_status(self) -> dict[str, Any]:
        cluster, found = self.cluster, self.cluster.described()
        voters = [row.replica_id for row in found.current_voters]
        return {
            "ClusterId": CLUSTER_ID,
            "LeaderId": str(found.leader_id),
            "LeaderEpoch": str(found.leader_epoch),
            "HighWatermark": str(found.high_watermark),
            "MaxFollowerLag": "0",
            "CurrentVoters": in_order(
                [
                    {
                        "id": node_id,
                        "directoryId": cluster.directory_id(node_id),
                        "endpoints": [f"CONTROLLER://{cluster.nodes[node_id].address}"],
                    }
                    for node_id in voters
                ]
            ),
            "CurrentObservers": in_order(
                [
                    {"id": node_id, "directoryId": cluster.directory_id(node_id)}
                    for node_id in cluster.running
                    if node_id not in voters
                ]
            ),
        }

    def _replication(self, node_id: int) -> list[dict[str, str]]:
        rows = table(self.run(node_id, QUORUM, "describe", "--replication"))
        for row in rows:
            fetched, caught_up = (int(row.pop(f"Last{name}Timestamp")) for name in TIMES)
            assert 0 < caught_up <= fetched, f"{row}: {caught_up}, {fetched}"
        return sorted(rows, key=lambda row: int(row["NodeId"]))

    def _expected_replication(self) -> list[dict[str, str]]:
        found = self.cluster.described()
        voters = [row.replica_id for row in found.current_voters]

        def status(node_id: int) -> str:
            if node_id == found.leader_id:
                return "Leader"
            return "Follower" if node_id in voters else "Observer"

        return [
            {
                "NodeId": str(node_id),
                "DirectoryId": self.cluster.directory_id(node_id),
                "LogEndOffset": str(found.high_watermark),
                "Lag": "0",
                "Status": status(node_id),
            }
            for node_id in sorted(self.cluster.running)
        ]

    # The logs

    def check_logs(self) -> None:
        """All running nodes have the same batches, as far as none has only a snapshot of them."""
        self.cluster.wait_until_whole()
        end = self.cluster.described().high_watermark
        dumped = {node_id: self._dumped(node_id) for node_id in self.cluster.running}
        start = max(min(lines) for lines in dumped.values())
        assert start < end
        for offset in range(start, end):
            lines = {node_id: each.get(offset) for node_id, each in dumped.items()}
            first, *others = lines.values()
            assert first is not None, (offset, lines)
            assert all(other == first for other in others), (offset, lines)

    def _dumped(self, node_id: int) -> Lines:
        """The lines about batches and records by their first offset."""
        segments = sorted(self.cluster.nodes[node_id].metadata_log.glob("*.log"))
        found: Lines = {}
        for line in dump(self.apache, *segments, options=["--cluster-metadata-decoder"]).lines:
            match = NUMBERED.match(line)
            if match is not None:
                found.setdefault(int(match[1]), []).append(POSITION.sub("", line))
        return found


def in_order(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(nodes, key=lambda node: int(node["id"]))
