"""`moldau cluster`: brokers, controller, features, quorum, API versions."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.lazy_commands import new_app
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.escaping import print_line
from moldau.cli.shared.output import AsJson, show_json, show_table
from moldau.cli.shared.parsing import time_text

if TYPE_CHECKING:
    from moldau.client.admin.cluster import DescribedCluster
    from moldau.client.admin.log_dirs import Replica
    from moldau.client.admin.quorum import DescribedQuorum, QuorumReplica
    from moldau.client.cluster.cluster import Cluster
    from moldau.protocol.messages.api_versions import ApiVersionsResponse

app = new_app(help="Brokers, controller, features, API versions.", no_args_is_help=True)


@app.command("describe")
@connected
def describe(connection: Connection, as_json: AsJson = False) -> None:
    """Show brokers, the controller, feature levels, and partitions with damaged records.

    [bold]Examples[/]

      moldau cluster describe

      moldau cluster describe --json | jq -r .clusterId
    """
    from moldau.cli.topics.details import damage_text, damaged_replicas
    from moldau.client.admin.cluster import describe_cluster, served_versions

    async def fetch(
        cluster: "Cluster",
    ) -> "tuple[DescribedCluster, ApiVersionsResponse, list[tuple[int, Replica]]]":
        described = await describe_cluster(cluster)
        damaged = await damaged_replicas(cluster, described)
        return described, await served_versions(cluster), damaged

    described, served, damaged = run(connection, fetch)
    if as_json:
        show_json(
            {
                "clusterId": described.cluster_id,
                "controllerId": described.controller_id,
                "brokers": [
                    {
                        "brokerId": broker.node_id,
                        "host": broker.address.host,
                        "port": broker.address.port,
                        "rack": broker.rack,
                        "fenced": broker.is_fenced,
                    }
                    for broker in described.brokers
                ],
                "features": _features_json(served),
                "damaged": _damage_json(damaged),
            }
        )
        return
    rows = [
        (
            broker.node_id,
            str(broker.address),
            broker.rack or "",
            "fenced" if broker.is_fenced else "running",
            "controller" if broker.node_id == described.controller_id else "",
        )
        for broker in described.brokers
    ]
    columns = ("broker", "address", "rack", "state", "role")
    show_table(columns, rows, title=f"cluster {described.cluster_id}")
    for node_id, replica in damaged:
        print_line(f"damaged: {replica.partition} on broker {node_id}: {damage_text(replica)}")
    print_line()
    _show_features(served)


def _damage_json(damaged: "list[tuple[int, Replica]]") -> list[dict[str, Any]]:
    from moldau.cli.topics.details import damage_json

    return [
        {
            "brokerId": node_id,
            "topic": replica.partition.topic,
            "partition": replica.partition.partition,
            "offsets": damage_json(replica),
            "offline": replica.is_offline,
        }
        for node_id, replica in damaged
    ]


@app.command("features")
@connected
def features(connection: Connection, as_json: AsJson = False) -> None:
    """Show feature levels: the finalized level and the levels that the broker supports.

    [bold]Example[/]

      moldau cluster features
    """
    from moldau.client.admin.cluster import served_versions

    served = run(connection, served_versions)
    if as_json:
        show_json(_features_json(served))
    else:
        _show_features(served)


def _features_json(served: "ApiVersionsResponse") -> list[dict[str, Any]]:
    finalized = {feature.name: feature.max_version_level for feature in served.finalized_features}
    return [
        {
            "name": feature.name,
            "level": finalized.get(feature.name, 0),
            "supportedMin": feature.min_version,
            "supportedMax": feature.max_version,
        }
        for feature in sorted(served.supported_features, key=lambda feature: feature.name)
    ]


def _show_features(served: "ApiVersionsResponse") -> None:
    rows = [
        (row["name"], row["level"], f"{row['supportedMin']}-{row['supportedMax']}")
        for row in _features_json(served)
    ]
    show_table(("feature", "level", "supported"), rows)


@app.command("quorum")
@connected
def quorum(connection: Connection, as_json: AsJson = False) -> None:
    """Show the controller quorum: its leader, voters and observers, and their lag.

    [bold]Example[/]

      moldau cluster quorum
    """
    from moldau.client.admin.quorum import describe_quorum

    described = run(connection, describe_quorum)
    if as_json:
        show_json(_quorum_json(described))
        return
    title = (
        f"leader {described.leader_id}, epoch {described.leader_epoch}, "
        f"committed {described.high_watermark}"
    )
    ends = [voter.log_end_offset for voter in described.voters]
    rows = [
        (
            replica.node_id,
            role,
            replica.log_end_offset,
            max(ends, default=0) - replica.log_end_offset,
            time_text(replica.last_caught_up_ms),
        )
        for role, replicas in (("voter", described.voters), ("observer", described.observers))
        for replica in replicas
    ]
    show_table(("node", "role", "log end", "lag", "caught up"), rows, title=title)


def _quorum_json(described: "DescribedQuorum") -> dict[str, Any]:
    from moldau.types import uuid_text

    def replicas(states: "tuple[QuorumReplica, ...]") -> list[dict[str, Any]]:
        return [
            {
                "nodeId": state.node_id,
                "directoryId": uuid_text(state.directory_id),
                "logEnd": state.log_end_offset,
                "lastFetchTimestamp": state.last_fetch_ms,
                "lastCaughtUpTimestamp": state.last_caught_up_ms,
            }
            for state in states
        ]

    return {
        "leaderId": described.leader_id,
        "leaderEpoch": described.leader_epoch,
        "highWatermark": described.high_watermark,
        "voters": replicas(described.voters),
        "observers": replicas(described.observers),
        "nodes": [
            {
                "nodeId": node_id,
                "listeners": [
                    {
                        "name": listener.name,
                        "host": listener.address.host,
                        "port": listener.address.port,
                    }
                    for listener in listeners
                ],
            }
            for node_id, listeners in described.listeners.items()
        ],
    }


@app.command("api-versions")
@connected
def api_versions(
    connection: Connection,
    broker: Annotated[
        int | None,
        typer.Option("--broker", help="Query this broker (default: any).", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the API versions that a broker serves, and those that this client uses.

    [bold]Example[/]

      moldau cluster api-versions --broker 1
    """
    from moldau.client.admin.cluster import served_versions
    from moldau.client.cluster.node_connection import supported_versions
    from moldau.protocol.api_keys import API_VERSIONS, ApiKey
    from moldau.protocol.messages import request_class

    served = run(connection, lambda cluster: served_versions(cluster, broker))
    rows = []
    for api in sorted(served.api_keys, key=lambda api: api.api_key):
        name, used = str(api.api_key), None
        if api.api_key in API_VERSIONS:
            name = ApiKey(api.api_key).name
            ours = supported_versions(request_class(api.api_key))
            newest = min(ours.newest, api.max_version)
            used = newest if newest >= max(ours.oldest, api.min_version) else None
        rows.append((api.api_key, name, api.min_version, api.max_version, used))
    if as_json:
        names = ("apiKey", "name", "minVersion", "maxVersion", "usable")
        show_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show_table(("key", "api", "oldest", "newest", "used"), rows)
