"""At the end of a run all nodes have the same metadata: the same topics in their answers, and the
same bytes in their metadata logs.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from support.running_cluster import RunningCluster
from support.waiting import wait_for
from support.wire_client import WireClient
from system.cluster.admin_load import request_for, setting_in
from system.cluster.admin_model import MISSING, ReadSetting
from system.node.questions import topics_of

from moldau.protocol.records.batches import iterate_batches

Views = Mapping[str, tuple[str, str]]
"""Number of partitions and setting by topic, or MISSING for both."""


def check_equal_views(cluster: RunningCluster, expected: Views) -> None:
    """Nodes that lag have a while to catch up."""
    partitions = {name: int(count) for name, (count, _) in expected.items() if count != MISSING}
    settings = {name: setting for name, (_, setting) in expected.items()}
    for node in cluster.nodes.values():
        with WireClient(node.address if node.is_broker else node.controller_address) as wire:
            if node.is_broker:
                wait_for(
                    lambda wire=wire: topics_of(wire) == partitions,  # type: ignore[misc]
                    f"the topics at node {node.node_id}",
                )
            wait_for(
                lambda wire=wire: settings_of(wire, expected) == settings,  # type: ignore[misc]
                f"the settings at node {node.node_id}",
            )


def settings_of(wire: WireClient, names: Views) -> dict[str, str]:
    return {name: setting_in(wire.ask(request_for(name, ReadSetting()))) for name in names}


def check_equal_logs(cluster: RunningCluster, node_ids: Sequence[int], end: int) -> None:
    """Stops these nodes and compares their logs up to `end`, as far as both have them."""
    cluster.stop(*node_ids)
    logs = [dict(batches_of(cluster.nodes[each].process.log_folder, end)) for each in node_ids]
    common = set(logs[0]).intersection(*logs[1:])
    first, last = min(common), max(common)
    for node_id, log in zip(node_ids, logs, strict=True):
        shared = {offset: batch for offset, batch in log.items() if first <= offset <= last}
        assert shared == {offset: logs[0][offset] for offset in shared}, f"node {node_id}"
        assert set(shared) == common, f"node {node_id}"


def batches_of(folder: Path, end: int) -> Iterator[tuple[int, bytes]]:
    for path in sorted((folder / "__cluster_metadata-0").glob("*.log")):
        for batch in iterate_batches(path.read_bytes()):
            if batch.base_offset < end:
                yield batch.base_offset, bytes(batch.view)
