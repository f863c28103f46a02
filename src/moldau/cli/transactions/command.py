"""`moldau transactions`: list, describe, find those that hang, end them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.lazy_commands import new_app
from moldau.cli.shared.completion import complete_transactional_ids
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.escaping import tell
from moldau.cli.shared.output import AsJson, Yes, complain, confirm, finish, show_json, show_table
from moldau.cli.shared.parsing import parse_duration_ms, time_text
from moldau.cli.transactions.details import (
    listed_json,
    producers_json,
    show_producers,
    transaction_json,
)
from moldau.cli.transactions.hanging import abort, find_hanging

if TYPE_CHECKING:
    from moldau.client.admin.transactions import Transaction
    from moldau.client.cluster.cluster import Cluster

app = new_app(help="Transactions: state, producers, hanging ones.", no_args_is_help=True)

_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)


@app.command("list")
@connected
def list_all(  # noqa: PLR0913 - each parameter is an option of the command
    connection: Connection,
    state: Annotated[
        str | None, typer.Option(help="Only in these states, like ongoing,prepare-commit.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="ID", help="Only of this producer.")
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Only those that began longer ago, like 15m."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only ids that match as a whole; the broker decides."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only ids, one per line.")] = False,
    as_json: AsJson = False,
) -> None:
    """List transactional ids.

    [bold]Examples[/]

      moldau transactions list

      moldau transactions list --state ongoing --longer-than 15m

      moldau transactions list --pattern 'billing-.*' -q
    """
    from moldau.client.admin.transactions import (
        ANY_DURATION,
        TransactionFilter,
        list_transactions,
    )

    wanted = TransactionFilter(
        states=[_state_name(name) for name in state.split(",")] if state else (),
        producer_ids=producer_id or (),
        longer_than_ms=parse_duration_ms(longer_than) if longer_than else ANY_DURATION,
        pattern=pattern,
    )
    found, unknown = run(connection, lambda cluster: list_transactions(cluster, wanted))
    if as_json:
        show_json([listed_json(one) for one in found])
    elif quiet:
        for one in found:
            tell(one.transactional_id)
    else:
        rows = [
            (one.transactional_id, one.producer_id, one.state, one.coordinator) for one in found
        ]
        show_table(("transactional id", "producer id", "state", "coordinator"), rows)
    for name in unknown:
        complain("transactions list", f"the broker knows no state '{name}'")
    finish(failed=bool(unknown))


def _state_name(text: str) -> str:
    # Kafka writes PrepareCommit and knows nothing else; people write prepare-commit.
    plain = text.replace("-", "").replace("_", "").strip().lower()
    known = {name.lower(): name for name in _STATES}
    if plain not in known:
        raise typer.BadParameter(f"there is no state '{text}'; there are {', '.join(_STATES)}.")
    return known[plain]


_Ids = Annotated[
    list[str],
    typer.Argument(
        metavar="ID...",
        autocompletion=complete_transactional_ids,
        show_default=False,
        help="Transactional ids.",
    ),
]


@app.command("describe", no_args_is_help=True)
@connected
def describe(connection: Connection, ids: _Ids, as_json: AsJson = False) -> None:
    """Show what a transactional id does: its producer, its state, the partitions it writes to.

    [bold]Examples[/]

      moldau transactions describe billing-1

      moldau transactions list -q | xargs moldau transactions describe --json
    """
    from moldau.client.admin.transactions import describe_transactions

    async def fetch(cluster: "Cluster") -> "tuple[int, dict[str, Transaction | None]]":
        return cluster.clock.wall_ms(), await describe_transactions(cluster, ids)

    now_ms, found = run(connection, fetch)
    known = [one for one in found.values() if one is not None]
    if as_json:
        show_json([transaction_json(one, now_ms) for one in known])
    else:
        for one in known:
            _show_transaction(one, now_ms)
    missing = [name for name, one in found.items() if one is None]
    for name in missing:
        complain("transactions describe", f"there is no transactional id '{name}'")
    finish(failed=bool(missing))


def _show_transaction(one: "Transaction", now_ms: int) -> None:
    rows: list[tuple[str, Any]] = [
        ("state", one.state),
        ("coordinator", one.coordinator),
        ("producer id", one.producer_id),
        ("producer epoch", one.producer_epoch),
        ("timeout", f"{one.timeout_ms} ms"),
    ]
    if one.start_ms is not None:
        rows.append(("started", time_text(one.start_ms)))
        rows.append(("open for", f"{now_ms - one.start_ms} ms"))
    rows += [("partition", str(partition)) for partition in one.partitions]
    tell(one.transactional_id)
    for name, value in rows:
        tell(f"  {name:<15} {value}")


@app.command("describe-producers", no_args_is_help=True)
@connected
def describe_producers(
    connection: Connection,
    partition: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC[:PARTITIONS]...", show_default=False, help="Like orders:0."),
    ],
    broker: Annotated[
        int | None, typer.Option(metavar="ID", help="Ask this replica instead of the leader.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who writes to partitions: ids, epochs, sequences, open transactions.

    [bold]Examples[/]

      moldau transactions describe-producers orders:0

      moldau transactions describe-producers orders --json
    """
    from moldau.cli.transactions.details import chosen_partitions
    from moldau.client.admin.transactions import PartitionProducer
    from moldau.client.admin.transactions import describe_producers as ask

    async def fetch(cluster: "Cluster") -> list[PartitionProducer]:
        return await ask(cluster, await chosen_partitions(cluster, partition), broker)

    found = run(connection, fetch)
    if as_json:
        show_json(producers_json(found))
    else:
        show_producers(found)


@app.command("force-terminate", no_args_is_help=True)
@connected
def force_terminate(
    connection: Connection,
    ids: _Ids,
    yes: Yes = False,
) -> None:
    """Abort what a transactional id has open, and fence whoever uses it.

    [bold]Example[/]

      moldau transactions force-terminate billing-1
    """
    from moldau.client.admin.transactions import describe_transactions
    from moldau.client.admin.transactions import force_terminate as terminate

    confirm(f"Abort what {', '.join(ids)} has open, and fence its producer?", yes=yes)

    async def work(cluster: "Cluster") -> list[str]:
        # Taking an id over would make one that is not there.
        found = await describe_transactions(cluster, ids)
        for name, one in found.items():
            if one is not None:
                await terminate(cluster, name)
                tell(f"terminated {name}")
        return [name for name, one in found.items() if one is None]

    missing = run(connection, work)
    for name in missing:
        complain("transactions force-terminate", f"there is no transactional id '{name}'")
    finish(failed=bool(missing))


# The commands of other modules come last in the help.
app.command("find-hanging")(connected(find_hanging))
app.command("abort", no_args_is_help=True)(connected(abort))
