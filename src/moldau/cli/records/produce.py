"""`moldau produce`: writes lines, JSON or whole files to a topic."""

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.shared.completion import complete_topics
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.output import complain, finish, show_json
from moldau.cli.shared.parsing import parse_settings, parse_size

if TYPE_CHECKING:
    from moldau.cli.records.producing import ProduceResult

_MEMORY_BYTES = 64 * 1024 * 1024
REQUEST_TIMEOUT_MS = 30_000


class AcksChoice(Enum):
    ALL = "all"
    ONE = "1"
    NONE = "0"


class CompressionChoice(Enum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


Acks = Annotated[
    AcksChoice,
    typer.Option(
        "--acks",
        help="Replicas that must acknowledge a record: all in-sync replicas, 1 (the leader), or 0 "
        "(none; the broker does not answer).",
    ),
]
Codec = Annotated[
    CompressionChoice, typer.Option("--compression", "-z", help="Compression of batches.")
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.001, metavar="N", help="Send at most N records per second."),
]
LingerMs = Annotated[
    float, typer.Option("--linger-ms", min=0, help="How long a batch waits for more records.")
]
BatchSize = Annotated[
    str, typer.Option("--batch-size", metavar="BYTES", help="Largest size of a batch.")
]
_Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="Topic name.",
        autocompletion=complete_topics,
        show_default=False,
    ),
]
_Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="Read this file instead of stdin; repeatable."
    ),
]
_Whole = Annotated[bool, typer.Option("--whole", help="Make each file the value of one record.")]
_JsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Read each line as a JSON object with key, value, headers, partition and timestamp, "
        "and print the summary as JSON.",
    ),
]
_KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-k", metavar="TEXT", help="Text between key and value in a line."
    ),
]
_Key = Annotated[str | None, typer.Option("--key", help="Key of every record.")]
_Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="Header of every record; repeatable."
    ),
]
_Null = Annotated[
    str | None,
    typer.Option("--null", metavar="TEXT", help="Write keys and values equal to TEXT as null."),
]
_Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, help="Write to this partition, regardless of keys."),
]
_Create = Annotated[bool, typer.Option("--create", help="Create the topic if it does not exist.")]
_KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Continue after failed records.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")]


@connected
def produce(  # noqa: PLR0913 - each parameter is an option of the command
    connection: Connection,
    topic: _Topic,
    files: _Files = None,
    whole: _Whole = False,
    json_lines: _JsonLines = False,
    key_separator: _KeySeparator = None,
    key: _Key = None,
    headers: _Headers = None,
    null: _Null = None,
    partition: _Partition = None,
    acks: Acks = AcksChoice.ALL,
    compression: Codec = CompressionChoice.NONE,
    rate: Rate = None,
    linger_ms: LingerMs = 5,
    batch_size: BatchSize = "256k",
    create: _Create = False,
    keep_going: _KeepGoing = False,
    quiet: _Quiet = False,
) -> None:
    """Write records to a topic, one for each line of stdin.

    With --acks all, a batch that is sent again is written only once.

    [bold]Examples[/]

      echo hello | moldau produce greetings --create

      moldau produce users --key-separator : < users.txt

      moldau consume orders --json | moldau produce orders-copy --json

      moldau produce pictures --whole --file cat.jpg --file dog.jpg --header source=disk
    """
    from moldau.cli.records.producing import Input, Shape, produce_all

    if whole and (json_lines or not files):
        raise typer.BadParameter("--whole needs --file, and excludes --json.")
    shape = Shape(
        is_json=json_lines,
        key_separator=None if key_separator is None else key_separator.encode(),
        key=None if key is None else key.encode(),
        headers=tuple(
            (name, text.encode()) for name, text in parse_settings(headers or ()).items()
        ),
        null=None if null is None else null.encode(),
        partition=partition,
    )
    source = Input(files=tuple(files or ()), is_whole=whole, rate=rate, keep_going=keep_going)
    source.check()
    settings = producer_settings(connection, acks, compression, linger_ms, batch_size)
    target = topic, create
    outcome = run(
        connection,
        lambda cluster: produce_all(cluster, target, shape, source, settings, _report_retry),
        fast=True,
    )
    _report(outcome, as_json=json_lines, quiet=quiet)


def producer_settings(
    connection: Connection,
    acks: AcksChoice,
    compression: CompressionChoice,
    linger_ms: float,
    batch_size: str,
) -> dict[str, Any]:
    """Settings of a command's producer. The broker, not the producer, limits record sizes."""
    from moldau.config.client_settings.producer import ProducerConfig

    patience_ms = round(connection.patience_s * 1000)
    attempt_ms = min(patience_ms, REQUEST_TIMEOUT_MS)
    return connection.client(
        ProducerConfig,
        acks=acks.value,
        compression_type=compression.value,
        linger_ms=round(linger_ms),
        batch_size=parse_size(batch_size),
        buffer_memory=_MEMORY_BYTES,
        max_request_size=_MEMORY_BYTES,
        max_block_ms=patience_ms,
        # The patience holds for each record: it includes an attempt, and the time a batch fills.
        request_timeout_ms=attempt_ms,
        delivery_timeout_ms=max(patience_ms, attempt_ms + round(linger_ms)),
    )


def _report_retry(problem: str) -> None:
    complain("produce", f"{problem}; retrying")


def _report(outcome: "ProduceResult", *, as_json: bool, quiet: bool) -> None:
    if as_json:
        show_json(outcome.as_json())
    elif not quiet:
        sys.stderr.write(outcome.summary() + "\n")
    for problem in outcome.problems:
        complain("produce", problem)
    finish(failed=not outcome.is_complete)
