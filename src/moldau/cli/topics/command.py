"""`moldau topics`: list, create, describe, delete and alter topics."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.lazy_commands import new_app
from moldau.cli.shared.completion import complete_topics
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.escaping import print_line
from moldau.cli.shared.output import (
    AsJson,
    Yes,
    bytes_text,
    complain,
    confirm,
    finish,
    show_json,
    show_table,
)
from moldau.cli.shared.parsing import parse_numbers, parse_pattern, parse_settings

if TYPE_CHECKING:
    from moldau.cli.topics.details import TopicDetails
    from moldau.client.admin.topics import CreatedTopic
    from moldau.client.cluster.cluster import Cluster
    from moldau.client.cluster.metadata import Topic
    from moldau.protocol.errors import KafkaError

app = new_app(help="List, create, describe, alter and delete topics.", no_args_is_help=True)

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC...",
        help="Topic names.",
        autocompletion=complete_topics,
        show_default=False,
    ),
]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="Topic setting; repeatable."),
]
_Partitions = Annotated[
    int | None,
    typer.Option("--partitions", "-p", min=1, help="Number of partitions (default: the broker's)."),
]
_Replication = Annotated[
    int | None,
    typer.Option(
        "--replication-factor", "-r", min=1, help="Replication factor (default: the broker's)."
    ),
]
_Assignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="B:B,B:B",
        help="Brokers of each partition, instead of --partitions and --replication-factor.",
    ),
]
_IfNotExists = Annotated[
    bool, typer.Option("--if-not-exists", help="Ignore topics that already exist.")
]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Validate the request without changing anything.")
]


@app.command("list")
@connected
def list_topics(
    connection: Connection,
    pattern: Annotated[
        str | None, typer.Argument(metavar="REGEX", help="Only topics whose whole names match.")
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", "-i", help="Include internal topics.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only names, one per line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List topics.

    [bold]Examples[/]

      moldau topics list

      moldau topics list --json 'orders.*' | jq '.[].name'
    """
    name_pattern = parse_pattern(pattern or ".*")

    async def fetch(cluster: "Cluster") -> list["Topic"]:
        topics = (await cluster.metadata(None)).topics.values()
        return sorted(topic for topic in topics if internal or not topic.is_internal)

    topics = [topic for topic in run(connection, fetch) if name_pattern.fullmatch(topic.name)]
    if as_json:
        show_json([_summary(topic) for topic in topics])
    elif quiet:
        for topic in topics:
            print_line(topic.name)
    else:
        rows = [(topic.name, len(topic.partitions), _replication(topic)) for topic in topics]
        show_table(("topic", "partitions", "replication"), rows)


def _replication(topic: "Topic") -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _summary(topic: "Topic") -> dict[str, Any]:
    from moldau.types import uuid_text

    return {
        "name": topic.name,
        "topicId": uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicationFactor": _replication(topic),
    }


@app.command("create", no_args_is_help=True)
@connected
def create(  # noqa: PLR0913 - each parameter is an option of the command
    connection: Connection,
    names: Names,
    partitions: _Partitions = None,
    replication: _Replication = None,
    configs: Configs = None,
    assignment: _Assignment = None,
    if_not_exists: _IfNotExists = False,
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Create topics.

    [bold]Examples[/]

      moldau topics create orders --partitions 6

      moldau topics create users -c cleanup.policy=compact -c min.cleanable.dirty.ratio=0.1
    """
    from moldau.client.admin.topics import BROKERS_DEFAULT, NewTopic, create_topics

    if assignment and (partitions or replication):
        raise typer.BadParameter(
            "--replica-assignment excludes --partitions and --replication-factor."
        )
    settings = parse_settings(configs or ())
    new_topics = [
        NewTopic(
            name=name,
            partitions=partitions or BROKERS_DEFAULT,
            replication_factor=replication or BROKERS_DEFAULT,
            configs=settings,
            assignment=_assignment(assignment),
        )
        for name in dict.fromkeys(names)
    ]
    results = run(
        connection, lambda cluster: create_topics(cluster, new_topics, validate_only=dry_run)
    )
    rows = [
        _created_json(name, outcome, created=not dry_run)
        for name, outcome in sorted(results.items())
    ]
    if if_not_exists:
        rows = [_without_exists(row) for row in rows]
    if as_json:
        show_json(rows)
    else:
        _print_created(rows, dry_run=dry_run)
    for row in rows:
        if row["error"]:
            complain("topics create", f"{row['name']}: {results[row['name']]}")
    finish(failed=any(row["error"] for row in rows))


def _created_json(
    name: str, outcome: "CreatedTopic | KafkaError", *, created: bool
) -> dict[str, Any]:
    from moldau.protocol.errors import KafkaError
    from moldau.types import uuid_text

    if isinstance(outcome, KafkaError):
        return {"name": name, "created": False, "error": outcome.code.name}
    return {
        "name": name,
        "created": created,
        "error": None,
        "topicId": uuid_text(outcome.topic_id),
        "partitions": outcome.partitions,
        "replicationFactor": outcome.replication_factor,
    }


def _without_exists(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"error": None} if row["error"] == "TOPIC_ALREADY_EXISTS" else row


def _print_created(rows: list[dict[str, Any]], *, dry_run: bool) -> None:
    for row in rows:
        if "topicId" in row:
            verb = "would create" if dry_run else "created"
            replication = f"replication {row['replicationFactor']}"
            print_line(f"{verb} {row['name']}: {_counted(row['partitions'])}, {replication}")
        elif not row["error"]:
            print_line(f"{row['name']} already exists")


def _counted(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"


def _assignment(text: str | None) -> list[list[int]]:
    return [parse_numbers(part.replace(":", ",")) for part in text.split(",")] if text else []


@app.command("delete", no_args_is_help=True)
@connected
def delete(
    connection: Connection,
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records.

    [bold]Examples[/]

      moldau topics delete orders-test

      moldau topics list -q 'test-.*' | xargs moldau topics delete --yes
    """
    from moldau.client.admin.topics import delete_topics
    from moldau.protocol.error_codes import ErrorCode

    confirm(f"Delete {', '.join(names)} and all their records?", yes=yes)
    results = run(connection, lambda cluster: delete_topics(cluster, list(dict.fromkeys(names))))
    rows, failed = [], False
    for name, error in sorted(results.items()):
        is_absent = error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rows.append({"name": name, "deleted": error is None})
        if error is None:
            if not as_json:
                print_line(f"deleted {name}")
        elif not (if_exists and is_absent):
            failed = True
            rows[-1]["error"] = error.code.name
            complain("topics delete", f"{name}: {'topic does not exist' if is_absent else error}")
    if as_json:
        show_json(rows)
    finish(failed=failed)


@app.command("alter", no_args_is_help=True)
@connected
def alter(
    connection: Connection,
    name: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="Topic name.", autocompletion=complete_topics, show_default=False
        ),
    ],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="New number of partitions.")
    ] = None,
    configs: Configs = None,
    delete_configs: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", metavar="NAME", help="Reset a setting to the broker's value."
        ),
    ] = None,
    dry_run: _DryRun = False,
) -> None:
    """Add partitions to a topic or change its settings.

    [bold]Examples[/]

      moldau topics alter orders --partitions 12

      moldau topics alter orders --config retention.ms=3600000 --delete-config cleanup.policy
    """
    from moldau.client.admin.configs import ConfigChange, ConfigResource, Operation, alter_configs
    from moldau.client.admin.topics import add_partitions
    from moldau.protocol.enums import ConfigResourceType

    settings = parse_settings(configs or ())
    changes = [ConfigChange(key, Operation.SET, value) for key, value in settings.items()]
    changes += [ConfigChange(key, Operation.DELETE) for key in delete_configs or ()]
    if partitions is None and not changes:
        raise typer.BadParameter(
            "nothing to change; give --partitions, --config or --delete-config."
        )

    async def change(cluster: "Cluster") -> None:
        await cluster.topic(name)
        if changes:
            resource = ConfigResource(ConfigResourceType.TOPIC, name)
            await alter_configs(cluster, resource, changes, validate_only=dry_run)
        if partitions is not None:
            await add_partitions(cluster, name, partitions, validate_only=dry_run)

    run(connection, change)
    print_line(f"{'would change' if dry_run else 'changed'} {name}")


@app.command("describe")
@connected
def describe(
    connection: Connection,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC...",
            help="Topic names (default: all topics except internal ones).",
            autocompletion=complete_topics,
            show_default=False,
        ),
    ] = None,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated", help="Only under-replicated partitions."),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", help="Only partitions without a leader.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show partitions with their leaders, in-sync replicas, offsets and sizes.

    [bold]Examples[/]

      moldau topics describe orders

      moldau topics describe --under-replicated

      moldau topics describe orders --json | jq '.[].partitions[].latest'
    """
    from moldau.cli.topics.details import TopicFilter, describe_topics, details_json

    topic_filter = TopicFilter(under_replicated=under_replicated, unavailable=unavailable)
    described = run(connection, lambda cluster: describe_topics(cluster, names, topic_filter))
    if as_json:
        show_json([details_json(details) for details in described])
        return
    for details in described:
        topic = details.topic
        configs = "".join(f" {key}={value}" for key, value in details.configs.items())
        count = _counted(len(topic.partitions))
        title = f"{topic.name}: {count}, replication {_replication(topic)}{configs}"
        columns = (
            "partition", "leader", "replicas", "in sync", "earliest", "latest", "records", "size",
        )  # fmt: skip
        rows = [
            (
                row.partition.number,
                row.partition.leader if row.partition.leader >= 0 else None,
                row.partition.replicas,
                row.partition.isr,
                row.earliest,
                row.latest,
                None if row.latest is None else row.latest - (row.earliest or 0),
                None if row.replica is None else bytes_text(row.replica.size_bytes),
            )
            for row in details.rows
        ]
        show_table(columns, rows, title=title)
        _show_damage(details)


def _show_damage(details: "TopicDetails") -> None:
    from moldau.cli.topics.details import damage_text

    for row in details.rows:
        if row.replica is not None and row.replica.damaged:
            print_line(f"damaged: {row.replica.partition}: {damage_text(row.replica)}")
    print_line()
