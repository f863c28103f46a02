"""`moldau bench`: throughput of writing and reading, and latency. Works with any broker."""

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.lazy_commands import new_app
from moldau.cli.records.produce import (
    Acks,
    AcksChoice,
    BatchSize,
    Codec,
    CompressionChoice,
    LingerMs,
    Rate,
    producer_settings,
)
from moldau.cli.shared.completion import complete_topics
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.output import AsJson, finish, show_json
from moldau.cli.shared.parsing import parse_size

if TYPE_CHECKING:
    from moldau.cli.bench.latencies import Latencies
    from moldau.cli.bench.work import Measured

app = new_app(help="Measure a broker under load.", no_args_is_help=True)

_Topic = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="An existing topic (default: a temporary one).",
        autocompletion=complete_topics,
        show_default=False,
    ),
]
_Records = Annotated[int, typer.Option("--records", "-n", min=1, help="Number of records.")]
_Size = Annotated[str, typer.Option("--size", "-s", metavar="BYTES", help="Size of each value.")]
_Partitions = Annotated[
    int, typer.Option("--partitions", "-p", min=1, help="Partitions of the temporary topic.")
]

_RECORDS_AT_ONCE = 10_000


@app.command("produce")
@connected
def produce(  # noqa: PLR0913 - each parameter is an option of the command
    connection: Connection,
    topic: _Topic = None,
    records: _Records = 500_000,
    size: _Size = "100",
    rate: Rate = None,
    acks: Acks = AcksChoice.ALL,
    compression: Codec = CompressionChoice.NONE,
    linger_ms: LingerMs = 5,
    batch_size: BatchSize = "256k",
    partitions: _Partitions = 1,
    as_json: AsJson = False,
) -> None:
    """Write records as fast as possible or at a fixed rate, and measure throughput and latency.

    [bold]Examples[/]

      moldau bench produce --records 1000000 --size 100

      moldau bench produce orders --rate 2000 --size 1k --records 20000 --linger-ms 0 --json
    """
    from moldau.cli.bench.work import Load, bench_produce

    load = Load(
        records=records, size_bytes=parse_size(size), rate=rate, topic=topic, partitions=partitions
    )
    options = producer_settings(connection, acks, compression, linger_ms, batch_size)
    measured = run(connection, lambda cluster: bench_produce(cluster, load, options), fast=True)
    _show("produce", measured, as_json=as_json)


@app.command("consume")
@connected
def consume(  # noqa: PLR0913 - each parameter is an option of the command
    connection: Connection,
    topic: _Topic = None,
    records: _Records = 500_000,
    size: _Size = "100",
    compression: Codec = CompressionChoice.NONE,
    partitions: _Partitions = 1,
    fetch_size: Annotated[
        str,
        typer.Option(
            "--fetch-size", metavar="BYTES", help="Maximum bytes from one partition in a response."
        ),
    ] = "1m",
    as_json: AsJson = False,
) -> None:
    """Read records as fast as possible. Without a topic, a temporary one is filled first.

    [bold]Examples[/]

      moldau bench consume --records 1000000

      moldau bench consume orders --json
    """
    from moldau.cli.bench.work import Load, bench_consume
    from moldau.config.client_settings.consumer import ConsumerConfig

    load = Load(records=records, size_bytes=parse_size(size), topic=topic, partitions=partitions)
    options = producer_settings(connection, AcksChoice.ALL, compression, 5, "256k")
    reading = connection.client(
        ConsumerConfig,
        max_partition_fetch_bytes=parse_size(fetch_size),
        max_poll_records=_RECORDS_AT_ONCE,
    )
    measured = run(
        connection, lambda cluster: bench_consume(cluster, load, options, reading), fast=True
    )
    _show("consume", measured, as_json=as_json)


@app.command("latency")
@connected
def latency(
    connection: Connection,
    topic: _Topic = None,
    records: _Records = 2_000,
    size: _Size = "100",
    acks: Acks = AcksChoice.ALL,
    as_json: AsJson = False,
) -> None:
    """Send one record at a time and measure the time until it is acknowledged and until it is read.

    [bold]Examples[/]

      moldau bench latency

      moldau bench latency --records 10000 --size 1k --acks 1 --json
    """
    from moldau.cli.bench.work import Load, bench_latency
    from moldau.config.client_settings.consumer import ConsumerConfig

    load = Load(records=records, size_bytes=parse_size(size), topic=topic)
    options = producer_settings(connection, acks, CompressionChoice.NONE, 0, "256k")
    reading = connection.client(ConsumerConfig)
    measured, acknowledged = run(
        connection, lambda cluster: bench_latency(cluster, load, options, reading), fast=True
    )
    if as_json:
        document = measured.as_json("latency")
        show_json(document | {"acknowledged": acknowledged.as_json()})
        return
    typer.echo(f"{measured.records} records in {measured.seconds:.2f} s")
    typer.echo(f"acknowledged  {_latencies_text(acknowledged)}")
    typer.echo(f"read          {_latencies_text(measured.latencies)}")


def _show(benchmark: str, measured: "Measured", *, as_json: bool) -> None:
    if as_json:
        show_json(measured.as_json(benchmark))
    else:
        typer.echo(
            f"{measured.records} records in {measured.seconds:.2f} s: "
            f"{measured.records_per_s:,.0f} records/s, {measured.mib_per_s:.1f} MiB/s"
        )
        if len(measured.latencies):
            typer.echo(f"latency  {_latencies_text(measured.latencies)}")
    if measured.error is not None:
        raise measured.error
    finish(failed=bool(measured.failed))


def _latencies_text(latencies: "Latencies") -> str:
    shown = latencies.as_json()
    return ", ".join(f"{name.removesuffix('Ms')} {value:.2f} ms" for name, value in shown.items())
