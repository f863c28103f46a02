"""`moldau groups reset-offsets`: options, confirmation and output; reset_plan.py decides."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.groups.options import AllGroups, Groups, Topics, chosen_groups
from moldau.cli.shared.connection import Connection, run
from moldau.cli.shared.output import (
    AsJson,
    Yes,
    complain,
    confirm,
    must_confirm,
    show_json,
    show_table,
)
from moldau.cli.shared.parsing import parse_ago_ms, parse_time_ms

if TYPE_CHECKING:
    from moldau.cli.groups.reset_plan import Plan, ResetMethod, ResetScope
    from moldau.client.cluster.cluster import Cluster

_WHERE = "New offsets"

_AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
]
_ToEarliest = Annotated[
    bool, typer.Option("--to-earliest", help="The first offset.", rich_help_panel=_WHERE)
]
_ToLatest = Annotated[
    bool, typer.Option("--to-latest", help="The end of the log.", rich_help_panel=_WHERE)
]
_ToCurrent = Annotated[
    bool,
    typer.Option(
        "--to-current",
        help="The committed offset; the end of the log where there is none.",
        rich_help_panel=_WHERE,
    ),
]
_ToOffset = Annotated[
    int | None,
    typer.Option("--to-offset", help="This offset.", rich_help_panel=_WHERE, show_default=False),
]
_ShiftBy = Annotated[
    int | None,
    typer.Option(
        "--shift-by",
        help="Move by this many offsets; negative: backward.",
        rich_help_panel=_WHERE,
        show_default=False,
    ),
]
_ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        metavar="TIME",
        help="The first record at or after this time, like 2026-05-01T12:00:00 (UTC by default).",
        rich_help_panel=_WHERE,
    ),
]
_ByDuration = Annotated[
    str | None,
    typer.Option(
        "--by-duration",
        metavar="DURATION",
        help="The first record within this time before now, like PT1H30M or 90m.",
        rich_help_panel=_WHERE,
    ),
]
_FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file", metavar="CSV", help="Offsets written by --export.", rich_help_panel=_WHERE
    ),
]
_Execute = Annotated[
    bool, typer.Option("--execute", help="Change the offsets, after a confirmation.")
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the plan (the default).")]
_Export = Annotated[
    bool, typer.Option("--export", help="Print the plan as CSV, for use with --from-file.")
]


def reset_offsets(  # noqa: PLR0913 - each parameter is an option of the command
    connection: Connection,
    groups: Groups = None,
    all_groups: AllGroups = False,
    topics: Topics = None,
    all_topics: _AllTopics = False,
    to_earliest: _ToEarliest = False,
    to_latest: _ToLatest = False,
    to_current: _ToCurrent = False,
    to_offset: _ToOffset = None,
    shift_by: _ShiftBy = None,
    to_datetime: _ToDatetime = None,
    by_duration: _ByDuration = None,
    from_file: _FromFile = None,
    execute: _Execute = False,
    dry_run: _DryRun = False,
    export: _Export = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change the committed offsets of an inactive group. Without --execute it only shows the plan.

    [bold]Examples[/]

      moldau groups reset-offsets billing --topic orders --to-earliest

      moldau groups reset-offsets billing --topic orders:0,1 --shift-by -100 --execute --yes

      moldau groups reset-offsets billing --all-topics --to-current --export > saved.csv
    """
    from moldau.cli.groups.reset_plan import ResetScope

    if execute and dry_run:
        raise typer.BadParameter("--execute and --dry-run exclude each other.")
    is_confirming = execute and must_confirm(yes=yes)
    if all_topics == bool(topics) and (from_file is None or topics):
        raise typer.BadParameter("give either --topic or --all-topics.")
    methods = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-current": to_current or None,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--from-file": from_file,
    }
    method = _method(groups or [], methods)
    scope = ResetScope(topics=tuple(topics or ()), all_topics=all_topics)

    async def plan(cluster: "Cluster") -> "dict[str, Plan]":
        names = await chosen_groups(cluster, groups, all_groups=all_groups)
        return {name: await _plan(cluster, name, scope, method) for name in names}

    plans = run(connection, plan)
    if is_confirming:
        _confirm(plans)
    if execute:
        run(connection, lambda cluster: _commit(cluster, plans))
    _show(plans, export=export, as_json=as_json, execute=execute)


def _confirm(plans: "dict[str, Plan]") -> None:
    _show_table(plans)
    confirm("Change the offsets to these?", yes=False)


def _show(plans: "dict[str, Plan]", *, export: bool, as_json: bool, execute: bool) -> None:
    from moldau.cli.groups.reset_plan import write_plans

    if export:
        typer.echo(write_plans(plans), nl=False)
    elif as_json:
        show_json([_plan_json(name, plan, execute=execute) for name, plan in plans.items()])
    else:
        _show_table(plans)
    if not execute:
        complain("groups reset-offsets", "nothing was changed; use --execute to apply the plan")


def _show_table(plans: "dict[str, Plan]") -> None:
    rows = [
        (name, partition.topic, partition.partition, offset)
        for name, plan in plans.items()
        for partition, offset in plan.items()
    ]
    show_table(("group", "topic", "partition", "new offset"), rows)


def _plan_json(group_id: str, plan: "Plan", *, execute: bool) -> dict[str, Any]:
    return {
        "groupId": group_id,
        "executed": execute,
        "partitions": [
            {"topic": partition.topic, "partition": partition.partition, "newOffset": offset}
            for partition, offset in plan.items()
        ],
    }


def _method(groups: list[str], options: dict[str, Any]) -> "ResetMethod":
    from moldau.cli.groups import reset_plan

    chosen = {name: value for name, value in options.items() if value is not None}
    if len(chosen) != 1:
        raise typer.BadParameter(f"choose one of {', '.join(options)}.")
    ((name, value),) = chosen.items()
    match name:
        case "--to-earliest":
            return reset_plan.to_earliest
        case "--to-latest":
            return reset_plan.to_latest
        case "--to-current":
            return reset_plan.to_current
        case "--to-offset":
            return reset_plan.to_offset(value)
        case "--shift-by":
            return reset_plan.shift_by(value)
        case "--to-datetime":
            return reset_plan.to_time(parse_time_ms(value))
        case "--by-duration":
            return reset_plan.to_time(parse_ago_ms(value))
        case _:
            content = value.read_text(encoding="utf-8")
            return reset_plan.from_plans(reset_plan.read_plans(content, groups))


async def _plan(
    cluster: "Cluster", group_id: str, scope: "ResetScope", method: "ResetMethod"
) -> "Plan":
    from moldau.cli.groups.reset_plan import Request
    from moldau.client.admin.groups import describe_group
    from moldau.client.errors import ClientError

    group = await describe_group(cluster, group_id)
    if group is not None and group.is_active:
        raise ClientError(
            f"group '{group_id}' is {group.state}; its offsets can only be changed while it has "
            "no active members"
        )
    request = Request(
        cluster=cluster,
        group_id=group_id,
        partitions=await scope.partitions(cluster, group_id),
        warn=lambda text: complain("groups reset-offsets", text),
    )
    return dict(sorted((await method(request)).items()))


async def _commit(cluster: "Cluster", plans: "dict[str, Plan]") -> None:
    from moldau.client.admin.groups import Committed, commit_offsets

    for group_id, plan in plans.items():
        offsets = {partition: Committed(offset) for partition, offset in plan.items()}
        await commit_offsets(cluster, group_id, offsets)
