"""`moldau groups`: lists groups, describes them with their lag, deletes them and their offsets."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.groups.options import AllGroups, Groups, Topics, chosen_groups
from moldau.cli.groups.reset import reset_offsets
from moldau.cli.lazy_commands import new_app
from moldau.cli.shared.completion import complete_groups
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.escaping import print_line
from moldau.cli.shared.output import AsJson, Yes, complain, confirm, finish, show_json, show_table
from moldau.cli.shared.parsing import parse_partitions

if TYPE_CHECKING:
    from moldau.cli.groups.details import GroupDetails
    from moldau.client.admin.groups import Group, ListedGroup
    from moldau.client.cluster.cluster import Cluster

# Of all types of groups, also those that only other brokers have.
_STATES = (
    "preparing-rebalance", "completing-rebalance", "assigning", "reconciling", "not-ready",
    "stable", "empty", "dead", "unknown",
)  # fmt: skip
_KINDS = ("classic", "consumer", "share", "streams", "unknown")

app = new_app(help="Consumer groups: members, lag, offsets.", no_args_is_help=True)


@app.command("list")
@connected
def list_all(
    connection: Connection,
    state: Annotated[
        str | None, typer.Option(help="Only groups in these states, for example stable,empty.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--type", help="Only groups of these types, for example classic,consumer."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only names, one per line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List groups.

    [bold]Examples[/]

      moldau groups list

      moldau groups list --state empty -q
    """
    from moldau.client.admin.groups import list_groups

    states, kinds = _chosen(state, _STATES, "state"), _chosen(kind, _KINDS, "type")
    groups = [
        group
        for group in run(connection, list_groups)
        if (not states or _plain(group.state) in states)
        and (not kinds or _plain(group.kind) in kinds)
    ]
    if as_json:
        show_json([_listed_json(group) for group in groups])
    elif quiet:
        for group in groups:
            print_line(group.group_id)
    else:
        rows = [(group.group_id, group.state, group.kind, group.coordinator) for group in groups]
        show_table(("group", "state", "type", "coordinator"), rows)


def _chosen(option: str | None, known: tuple[str, ...], noun: str) -> set[str]:
    """The names in the option; an empty set stands for all."""
    names = [] if option is None else option.split(",")
    for name in names:
        if _plain(name) not in map(_plain, known):
            raise typer.BadParameter(
                f"unknown group {noun} '{name.strip()}'; known are {', '.join(known)}."
            )
    return {_plain(name) for name in names}


def _plain(text: str) -> str:
    """Kafka writes PreparingRebalance; people write preparing-rebalance and preparing_rebalance."""
    return text.replace("-", "").replace("_", "").strip().lower()


def _listed_json(group: "ListedGroup") -> dict[str, Any]:
    return {
        "groupId": group.group_id,
        "state": group.state,
        "type": group.kind,
        "protocolType": group.protocol_type,
        "coordinator": group.coordinator,
    }


@app.command("describe", no_args_is_help=True)
@connected
def describe(
    connection: Connection,
    groups: Groups = None,
    all_groups: AllGroups = False,
    members: Annotated[
        bool,
        typer.Option(
            "--members", "-m", help="Show one row per member instead of one per partition."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a group's members and the lag of each partition.

    [bold]Examples[/]

      moldau groups describe billing

      moldau groups describe billing --members

      moldau groups describe --all-groups --json | jq '.[] | {groupId, totalLag}'
    """
    from moldau.cli.groups.details import details_json, group_details

    async def fetch(cluster: "Cluster") -> dict[str, "GroupDetails | None"]:
        names = await chosen_groups(cluster, groups, all_groups=all_groups)
        return {name: await group_details(cluster, name) for name in names}

    described = run(connection, fetch)
    missing = [name for name, details in described.items() if details is None]
    known = [details for details in described.values() if details is not None]
    if as_json:
        show_json([details_json(details) for details in known])
    else:
        for details in known:
            if members:
                _show_members(details)
            else:
                _show_lag(details)
    for name in missing:
        complain("groups describe", f"group '{name}' does not exist")
    finish(failed=bool(missing))


def _headline(group: "Group") -> str:
    count = len(group.members)
    plural = "member" if count == 1 else "members"
    assignor = f", {group.assignor}" if group.assignor else ""
    members = f"{count} {plural}{assignor}"
    return f"{group.group_id}: {group.state}, {members}, coordinator {group.coordinator}"


def _show_lag(details: "GroupDetails") -> None:
    rows = [
        (
            row.partition.topic,
            row.partition.partition,
            None if row.committed is None else row.committed.offset,
            row.log_end,
            row.lag,
            row.member.member_id if row.member else None,
            row.member.host if row.member else None,
            row.member.client_id if row.member else None,
        )
        for row in details.rows
    ]
    columns = ("topic", "partition", "committed", "end", "lag", "member", "host", "client")
    show_table(columns, rows, title=_headline(details.group))
    print_line(f"total lag: {details.total_lag}")
    print_line()


def _show_members(details: "GroupDetails") -> None:
    from moldau.cli.groups.details import assignment_text

    rows = [
        (
            member.member_id,
            member.instance_id or "",
            member.host,
            member.client_id,
            len(member.assignment),
            assignment_text(member.assignment),
        )
        for member in details.group.members
    ]
    columns = ("member", "instance", "host", "client", "partitions", "assignment")
    show_table(columns, rows, title=_headline(details.group))
    print_line()


@app.command("delete", no_args_is_help=True)
@connected
def delete(
    connection: Connection,
    groups: Groups = None,
    all_groups: AllGroups = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete inactive groups and their offsets.

    [bold]Examples[/]

      moldau groups delete billing

      moldau groups list --state empty -q | xargs moldau groups delete --yes
    """
    from moldau.client.admin.groups import delete_groups

    confirm(f"Delete {', '.join(groups or ['all groups'])} and their offsets?", yes=yes)

    async def work(cluster: "Cluster") -> dict[str, Any]:
        return await delete_groups(
            cluster, await chosen_groups(cluster, groups, all_groups=all_groups)
        )

    results = run(connection, work)
    rows = []
    for name, error in results.items():
        rows.append({"groupId": name, "deleted": error is None})
        if error is not None:
            rows[-1]["error"] = error.code.name
            complain("groups delete", f"{name}: {error}")
        elif not as_json:
            print_line(f"deleted {name}")
    if as_json:
        show_json(rows)
    finish(failed=any(error is not None for error in results.values()))


@app.command("delete-offsets", no_args_is_help=True)
@connected
def delete_group_offsets(
    connection: Connection,
    group: Annotated[
        str,
        typer.Argument(
            metavar="GROUP", help="Group name.", autocompletion=complete_groups, show_default=False
        ),
    ],
    topics: Topics = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a group's offsets for topics that none of its members reads.

    [bold]Examples[/]

      moldau groups delete-offsets billing --topic orders

      moldau groups delete-offsets billing --topic orders:3 --yes
    """
    from moldau.client.admin.groups import delete_offsets

    if not topics:
        raise typer.BadParameter("name the topics with --topic.")
    confirm(f"Delete the offsets of {group} for {', '.join(topics)}?", yes=yes)

    async def work(cluster: "Cluster") -> dict[Any, Any]:
        names, partitions = parse_partitions(topics)
        for topic in (await cluster.topics(names)).values():
            partitions += topic.topic_partitions
        return await delete_offsets(cluster, group, partitions)

    results = run(connection, work)
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "error": error.code.name if error else None,
        }
        for partition, error in sorted(results.items())
    ]
    if as_json:
        show_json(rows)
    else:
        shown = [(row["topic"], row["partition"], row["error"] or "deleted") for row in rows]
        show_table(("topic", "partition", "result"), shown)
    finish(failed=any(row["error"] for row in rows))


# The commands of other modules come last in the help.
app.command("reset-offsets", no_args_is_help=True)(connected(reset_offsets))
