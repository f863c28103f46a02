"""`moldau produce`: lines, JSON or whole files become records of a topic."""

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
    from moldau.cli.records.producing import Outcome

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
        help="Which replicas must have a record before it counts as written: all that are in "
        "sync, 1 (the leader), or 0 (none: the broker does not even answer).",
    ),
]
Codec = Annotated[
    CompressionChoice, typer.Option("--compression", "-z", help="How batches are compressed.")
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.001, metavar="N", help="At most so many records a second."),
]
LingerMs = Annotated[
    float, typer.Option("--linger-ms", min=0, help="How long a batch waits for more records.")
]
BatchSize = Annotated[
    str, typer.Option("--batch-size", metavar="BYTES", help="How large a batch may become.")
]
_Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics, show_default=False)
]
_Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="Read this file, not stdin; may be repeated."
    ),
]
_Whole = Annotated[bool, typer.Option("--whole", help="Each file is the value of one record.")]
_JsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Each line is a JSON object with key, value, headers, partition, timestamp; the "
        "summary is JSON too.",
    ),
]
_KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-k", metavar="TEXT", help="What stands between key and value in a line."
    ),
]
_Key = Annotated[str | None, typer.Option("--key", help="The key of every record.")]
_Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be repeated."
    ),
]
_Null = Annotated[
    str | None,
    typer.Option("--null", metavar="TEXT", help="A key or value that is this text is null."),
]
_Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, help="Write to this partition, whatever the key."),
]
_Create = Annotated[bool, typer.Option("--create", help="Make the topic if it is missing.")]
_KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Continue after records that fail.")]
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
    """Write records to a topic: each line of stdin is one.

    With --acks all, a batch that has to be sent again is stored once.

    [bold]Examples[/]

      echo hello | moldau produce greetings --create

      moldau produce users --key-separator : < users.txt

      moldau consume orders --json | moldau produce orders-copy --json

      moldau produce pictures --whole --file cat.jpg --file dog.jpg --header source=disk
    """
    from moldau.cli.records.producing import Input, Shape, produce_all

    if whole and (json_lines or not files):
        raise typer.BadParameter("--whole needs --file, and takes no --json.")
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
    given = Input(files=tuple(files or ()), is_whole=whole, rate=rate, keep_going=keep_going)
    given.check()
    settings = producer_settings(connection, acks, compression, linger_ms, batch_size)
    target = topic, create
    outcome = run(
        connection,
        lambda cluster: produce_all(cluster, target, shape, given, settings, _tell_retry),
        fast=True,
    )
    _tell(outcome, as_json=json_lines, quiet=quiet)


def producer_settings(
    connection: Connection,
    acks: AcksChoice,
    compression: CompressionChoice,
    linger_ms: float,
    batch_size: str,
) -> dict[str, Any]:
    """What a producer of a command is made with. Brokers say what is too large, not it."""
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
        # Patience is with each record: an attempt must fit in, and the time that a batch fills.
        request_timeout_ms=attempt_ms,
        delivery_timeout_ms=max(patience_ms, attempt_ms + round(linger_ms)),
    )


def _tell_retry(trouble: str) -> None:
    complain("produce", f"{trouble}; trying again")


def _tell(outcome: "Outcome", *, as_json: bool, quiet: bool) -> None:
    if as_json:
        show_json(outcome.as_json())
    elif not quiet:
        sys.stderr.write(outcome.summary() + "\n")
    for problem in outcome.problems:
        complain("produce", problem)
    finish(failed=not outcome.is_complete)
