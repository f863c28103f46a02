"""What the commands of `moldau groups` have in common: which groups, which topics."""

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
        help="Names of groups.",
        autocompletion=complete_groups,
        show_default=False,
    ),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All groups that there are.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:0,1]",
        help="A topic, or some of its partitions; may be repeated.",
        autocompletion=complete_topics,
        show_default=False,
    ),
]


async def chosen_groups(
    cluster: "Cluster", groups: list[str] | None, *, all_groups: bool
) -> Collection[str]:
    from moldau.client.admin.groups import list_groups

    if all_groups == bool(groups):
        raise typer.BadParameter("name groups, or say --all-groups.")
    if groups:
        return dict.fromkeys(groups)
    # Share and streams groups keep their offsets elsewhere.
    kinds = {"", "classic", "consumer"}
    return [one.group_id for one in await list_groups(cluster) if one.kind.lower() in kinds]
