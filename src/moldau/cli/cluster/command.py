"""`moldau cluster`: brokers, controller, features, quorum, versions of the protocol."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.lazy_commands import new_app
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.escaping import tell
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
    """Show brokers, the controller, the features in force, and partitions with damaged records.

    [bold]Examples[/]

      moldau cluster describe

      moldau cluster describe --json | jq -r .clusterId
    """
    from moldau.cli.topics.details import damage_text, damaged_replicas
    from moldau.client.admin.cluster import describe_cluster, served_versions

    async def fetch(
        cluster: "Cluster",
    ) -> "tuple[DescribedCluster, ApiVersionsResponse, list[tuple[int, Replica]]]":
        found = await describe_cluster(cluster)
        return found, await served_versions(cluster), await damaged_replicas(cluster, found)

    found, served, damaged = run(connection, fetch)
    if as_json:
        show_json(
            {
                "clusterId": found.cluster_id,
                "controllerId": found.controller_id,
                "brokers": [
                    {
                        "brokerId": broker.node_id,
                        "host": broker.address.host,
                        "port": broker.address.port,
                        "rack": broker.rack,
                        "fenced": broker.is_fenced,
                    }
                    for broker in found.brokers
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
            "controller" if broker.node_id == found.controller_id else "",
        )
        for broker in found.brokers
    ]
    columns = ("broker", "address", "rack", "state", "role")
    show_table(columns, rows, title=f"cluster {found.cluster_id}")
    for node_id, replica in damaged:
        tell(f"damaged: {replica.partition} on broker {node_id}: {damage_text(replica)}")
    tell()
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
    """Show feature levels: what is in force and what the broker could do.

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
    finalized = {one.name: one.max_version_level for one in served.finalized_features}
    return [
        {
            "name": one.name,
            "level": finalized.get(one.name, 0),
            "supportedMin": one.min_version,
            "supportedMax": one.max_version,
        }
        for one in sorted(served.supported_features, key=lambda feature: feature.name)
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
    """Show the controllers' quorum: leader, voters, observers, how far each is.

    [bold]Example[/]

      moldau cluster quorum
    """
    from moldau.client.admin.quorum import describe_quorum

    found = run(connection, describe_quorum)
    if as_json:
        show_json(_quorum_json(found))
        return
    title = (
        f"leader {found.leader_id}, epoch {found.leader_epoch}, committed {found.high_watermark}"
    )
    ends = [one.log_end_offset for one in found.voters]
    rows = [
        (
            one.node_id,
            role,
            one.log_end_offset,
            max(ends, default=0) - one.log_end_offset,
            time_text(one.last_caught_up_ms),
        )
        for role, replicas in (("voter", found.voters), ("observer", found.observers))
        for one in replicas
    ]
    show_table(("node", "role", "log end", "lag", "caught up"), rows, title=title)


def _quorum_json(found: "DescribedQuorum") -> dict[str, Any]:
    from moldau.types import uuid_text

    def replicas(states: "tuple[QuorumReplica, ...]") -> list[dict[str, Any]]:
        return [
            {
                "nodeId": one.node_id,
                "directoryId": uuid_text(one.directory_id),
                "logEnd": one.log_end_offset,
                "lastFetchTimestamp": one.last_fetch_ms,
                "lastCaughtUpTimestamp": one.last_caught_up_ms,
            }
            for one in states
        ]

    return {
        "leaderId": found.leader_id,
        "leaderEpoch": found.leader_epoch,
        "highWatermark": found.high_watermark,
        "voters": replicas(found.voters),
        "observers": replicas(found.observers),
        "nodes": [
            {
                "nodeId": node_id,
                "listeners": [
                    {"name": one.name, "host": one.address.host, "port": one.address.port}
                    for one in listeners
                ],
            }
            for node_id, listeners in found.listeners.items()
        ],
    }


@app.command("api-versions")
@connected
def api_versions(
    connection: Connection,
    broker: Annotated[
        int | None, typer.Option("--broker", help="Ask this broker.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which versions of the protocol's APIs a broker serves, and which we would use.

    [bold]Example[/]

      moldau cluster api-versions --broker 1
    """
    from moldau.client.admin.cluster import served_versions
    from moldau.client.cluster.node_connection import spoken
    from moldau.protocol.api_keys import API_VERSIONS, ApiKey
    from moldau.protocol.messages import request_class

    served = run(connection, lambda cluster: served_versions(cluster, broker))
    rows = []
    for api in sorted(served.api_keys, key=lambda one: one.api_key):
        name, used = str(api.api_key), None
        if api.api_key in API_VERSIONS:
            name = ApiKey(api.api_key).name
            ours = spoken(request_class(api.api_key))
            newest = min(ours.newest, api.max_version)
            used = newest if newest >= max(ours.oldest, api.min_version) else None
        rows.append((api.api_key, name, api.min_version, api.max_version, used))
    if as_json:
        names = ("apiKey", "name", "minVersion", "maxVersion", "usable")
        show_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show_table(("key", "api", "oldest", "newest", "used"), rows)
