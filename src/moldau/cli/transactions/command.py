"""`moldau transactions`: lists, describes and terminates transactions."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.lazy_commands import new_app
from moldau.cli.shared.completion import complete_transactional_ids
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.escaping import print_line
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

app = new_app(help="Transactions: state, producers, hanging transactions.", no_args_is_help=True)

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
        str | None,
        typer.Option(help="Only ids in these states, for example ongoing,prepare-commit."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", help="Only ids of this producer; repeatable."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Only transactions open for longer than this, like 15m."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only ids that match as a whole (RE2 syntax)."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only ids, one per line.")
    ] = False,
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

    transaction_filter = TransactionFilter(
        states=[_state_name(name) for name in state.split(",")] if state else (),
        producer_ids=producer_id or (),
        longer_than_ms=parse_duration_ms(longer_than) if longer_than else ANY_DURATION,
        pattern=pattern,
    )
    listed, unknown = run(
        connection, lambda cluster: list_transactions(cluster, transaction_filter)
    )
    if as_json:
        show_json([listed_json(transaction) for transaction in listed])
    elif quiet:
        for transaction in listed:
            print_line(transaction.transactional_id)
    else:
        rows = [
            (
                transaction.transactional_id,
                transaction.producer_id,
                transaction.state,
                transaction.coordinator,
            )
            for transaction in listed
        ]
        show_table(("transactional id", "producer id", "state", "coordinator"), rows)
    for name in unknown:
        complain("transactions list", f"the broker does not know the state '{name}'")
    finish(failed=bool(unknown))


def _state_name(text: str) -> str:
    # Kafka accepts only PrepareCommit; people also write prepare-commit.
    plain = text.replace("-", "").replace("_", "").strip().lower()
    known = {name.lower(): name for name in _STATES}
    if plain not in known:
        raise typer.BadParameter(f"unknown state '{text}'; known are {', '.join(_STATES)}.")
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
    """Show the state, producer and partitions of transactional ids.

    [bold]Examples[/]

      moldau transactions describe billing-1

      moldau transactions list -q | xargs moldau transactions describe --json
    """
    from moldau.client.admin.transactions import describe_transactions

    async def fetch(cluster: "Cluster") -> "tuple[int, dict[str, Transaction | None]]":
        return cluster.clock.wall_ms(), await describe_transactions(cluster, ids)

    now_ms, described = run(connection, fetch)
    known = [transaction for transaction in described.values() if transaction is not None]
    if as_json:
        show_json([transaction_json(transaction, now_ms) for transaction in known])
    else:
        for transaction in known:
            _show_transaction(transaction, now_ms)
    missing = [name for name, transaction in described.items() if transaction is None]
    for name in missing:
        complain("transactions describe", f"transactional id '{name}' does not exist")
    finish(failed=bool(missing))


def _show_transaction(transaction: "Transaction", now_ms: int) -> None:
    rows: list[tuple[str, Any]] = [
        ("state", transaction.state),
        ("coordinator", transaction.coordinator),
        ("producer id", transaction.producer_id),
        ("producer epoch", transaction.producer_epoch),
        ("timeout", f"{transaction.timeout_ms} ms"),
    ]
    if transaction.start_ms is not None:
        rows.append(("started", time_text(transaction.start_ms)))
        rows.append(("open for", f"{now_ms - transaction.start_ms} ms"))
    rows += [("partition", str(partition)) for partition in transaction.partitions]
    print_line(transaction.transactional_id)
    for name, value in rows:
        print_line(f"  {name:<15} {value}")


@app.command("describe-producers", no_args_is_help=True)
@connected
def describe_producers(
    connection: Connection,
    partition: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC[:PARTITIONS]...", show_default=False, help="For example orders:0."
        ),
    ],
    broker: Annotated[
        int | None, typer.Option(metavar="ID", help="Query this replica instead of the leader.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the active producers of partitions: ids, epochs, sequences, open transactions.

    [bold]Examples[/]

      moldau transactions describe-producers orders:0

      moldau transactions describe-producers orders --json
    """
    from moldau.cli.transactions.details import chosen_partitions
    from moldau.client.admin.transactions import PartitionProducer
    from moldau.client.admin.transactions import describe_producers as describe

    async def fetch(cluster: "Cluster") -> list[PartitionProducer]:
        return await describe(cluster, await chosen_partitions(cluster, partition), broker)

    producers = run(connection, fetch)
    if as_json:
        show_json(producers_json(producers))
    else:
        show_producers(producers)


@app.command("force-terminate", no_args_is_help=True)
@connected
def force_terminate(
    connection: Connection,
    ids: _Ids,
    yes: Yes = False,
) -> None:
    """Abort the open transactions of transactional ids and fence their producers.

    [bold]Example[/]

      moldau transactions force-terminate billing-1
    """
    from moldau.client.admin.transactions import describe_transactions
    from moldau.client.admin.transactions import force_terminate as terminate

    confirm(f"Abort the open transactions of {', '.join(ids)} and fence the producers?", yes=yes)

    async def work(cluster: "Cluster") -> list[str]:
        # Terminating an unknown id would create it.
        described = await describe_transactions(cluster, ids)
        for name, transaction in described.items():
            if transaction is not None:
                await terminate(cluster, name)
                print_line(f"terminated {name}")
        return [name for name, transaction in described.items() if transaction is None]

    missing = run(connection, work)
    for name in missing:
        complain("transactions force-terminate", f"transactional id '{name}' does not exist")
    finish(failed=bool(missing))


# The commands of other modules come last in the help.
app.command("find-hanging")(connected(find_hanging))
app.command("abort", no_args_is_help=True)(connected(abort))
