"""Options that the commands of `moldau groups` share: groups and topics."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.shared.completion import complete_groups, complete_topics

if TYPE_CHECKING:
    from moldau.client.cluster.cluster import Cluster

Groups = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="GROUP...",
        help="Group names.",
        autocompletion=complete_groups,
        show_default=False,
    ),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All groups.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:0,1]",
        help="A topic, or partitions of it; repeatable.",
        autocompletion=complete_topics,
        show_default=False,
    ),
]


async def chosen_groups(
    cluster: "Cluster", groups: list[str] | None, *, all_groups: bool
) -> Collection[str]:
    from moldau.client.admin.groups import list_groups

    if all_groups == bool(groups):
        raise typer.BadParameter("name groups, or use --all-groups.")
    if groups:
        return dict.fromkeys(groups)
    # Share and streams groups keep their offsets elsewhere.
    kinds = {"", "classic", "consumer"}
    return [group.group_id for group in await list_groups(cluster) if group.kind.lower() in kinds]
