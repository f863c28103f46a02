"""`moldau consume`: prints records as lines, as JSON or in a format of the user's own."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.shared.completion import complete_groups, complete_topics
from moldau.cli.shared.connection import Connection, connected, run
from moldau.cli.shared.parsing import parse_ago_ms, parse_pattern, parse_time_ms

if TYPE_CHECKING:
    from moldau.cli.records.consuming import Reading
    from moldau.cli.records.record_formats import Formatter
    from moldau.client.start_positions import StartAt

_SHOW = "What to print"

_Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC[:0,1]...",
        help="Topics, or partitions of them.",
        autocompletion=complete_topics,
        show_default=False,
    ),
]
_Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        "--include",
        metavar="REGEX",
        help="All topics whose whole names match, except internal ones; with --group also topics "
        "created later.",
        show_default=False,
    ),
]
_Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        help="Join this consumer group and resume from its committed offsets.",
        autocompletion=complete_groups,
    ),
]
_Instance = Annotated[
    str | None, typer.Option("--instance-id", help="Join the group as this static member.")
]
_NoCommit = Annotated[
    bool, typer.Option("--no-commit", help="Do not commit offsets for the group.")
]
_From = Annotated[
    str | None,
    typer.Option(
        "--from",
        "-o",
        metavar="WHERE",
        help="Where to start: beginning (the default), end (the default with --follow), an offset, "
        "-N for the last N records, a time, or a duration before now.",
        show_default=False,
    ),
]
_Max = Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after N records.")]
_Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep waiting for new records at the end.")
]
_Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.001,
        help="Wait for new records at the end, and stop after this long without any.",
    ),
]
_Committed = Annotated[
    bool, typer.Option("--committed", help="Skip records of open and aborted transactions.")
]
_Json = Annotated[
    bool, typer.Option("--json", help="One JSON object per line.", rich_help_panel=_SHOW)
]
_Hex = Annotated[
    bool,
    typer.Option("--hex", help="Show keys and values in hexadecimal.", rich_help_panel=_SHOW),
]
_Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEXT",
        help="%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time in ms, "
        "%D date, %K and %S sizes; \\n, \\t.",
        rich_help_panel=_SHOW,
        show_default=False,
    ),
]
_Keys = Annotated[bool, typer.Option("--keys", "-k", help="Show keys.", rich_help_panel=_SHOW)]
_Headers = Annotated[
    bool, typer.Option("--headers", "-H", help="Show headers.", rich_help_panel=_SHOW)
]
_Timestamps = Annotated[
    bool, typer.Option("--timestamps", "-T", help="Show timestamps.", rich_help_panel=_SHOW)
]
_Partitions = Annotated[
    bool,
    typer.Option("--partitions", "-P", help="Show topic and partition.", rich_help_panel=_SHOW),
]
_Offsets = Annotated[
    bool, typer.Option("--offsets", "-O", help="Show offsets.", rich_help_panel=_SHOW)
]
_Separator = Annotated[
    str,
    typer.Option(
        "--separator", metavar="TEXT", help="Text between the parts.", rich_help_panel=_SHOW
    ),
]
_End = Annotated[
    str,
    typer.Option("--end", metavar="TEXT", help="Text after each record.", rich_help_panel=_SHOW),
]


@connected
def consume(  # noqa: PLR0913 - each parameter is an option of the command
    connection: Connection,
    topics: _Topics = None,
    pattern: _Pattern = None,
    group: _Group = None,
    instance_id: _Instance = None,
    no_commit: _NoCommit = False,
    start: _From = None,
    count_max: _Max = None,
    follow: _Follow = False,
    timeout: _Timeout = None,
    committed: _Committed = False,
    as_json: _Json = False,
    as_hex: _Hex = False,
    own_format: _Format = None,
    keys: _Keys = False,
    headers: _Headers = False,
    timestamps: _Timestamps = False,
    partitions: _Partitions = False,
    offsets: _Offsets = False,
    separator: _Separator = "\\t",
    end: _End = "\\n",
) -> None:
    """Read records from topics, up to the end or, with --follow, until you stop it.

    [bold]Examples[/]

      moldau consume orders

      moldau consume orders --follow --keys --timestamps

      moldau consume orders:0 --from -10

      moldau consume orders --from 2026-05-01T12:00:00 --max 100 --json

      moldau consume --pattern 'orders-.*' --group billing --follow

      moldau consume orders --format '%p %o %k %s\\n'
    """
    from moldau.cli.records.consuming import Reading
    from moldau.cli.records.record_formats import Parts, plain, unescaped

    parts = Parts(
        timestamps=timestamps, partitions=partitions, offsets=offsets, headers=headers, keys=keys
    )
    formatter = plain(parts, unescaped(separator), unescaped(end))
    reading = Reading(
        topics=tuple(topics or ()),
        pattern=None if pattern is None else parse_pattern(pattern),
        group_id=group,
        instance_id=instance_id,
        is_committing=not no_commit,
        start=_start(start, follow=follow),
        count_max=count_max,
        timeout_ms=None if timeout is None else timeout * 1000,
        is_following=follow,
        is_read_committed=committed,
        formatter=_formatter(formatter, own_format, as_json=as_json, as_hex=as_hex),
    )
    _run(connection, reading)


def _run(connection: Connection, reading: "Reading") -> None:
    from moldau.cli.records.consuming import consume_all

    reading.check()
    settings = _settings(connection, reading)
    run(connection, lambda cluster: consume_all(cluster, reading, settings), fast=True)


def _settings(connection: Connection, reading: "Reading") -> dict[str, Any]:
    from moldau.config.client_settings.consumer import ConsumerConfig

    patience_ms = round(connection.patience_s * 1000)
    return connection.client(
        ConsumerConfig, default_api_timeout_ms=patience_ms, **reading.settings()
    )


def _start(text: str | None, *, follow: bool) -> "StartAt":
    from moldau.client.start_positions import StartAt, StartPosition

    if text is None:
        return StartAt(StartPosition.END if follow else StartPosition.BEGINNING)
    if text in {"beginning", "earliest"}:
        return StartAt(StartPosition.BEGINNING)
    if text in {"end", "latest"}:
        return StartAt(StartPosition.END)
    word, colon, rest = text.partition(":")
    if colon and word in {"offset", "tail"} and rest.isdigit():
        return StartAt(StartPosition[word.upper()], int(rest))
    if text.isdigit():
        return StartAt(StartPosition.OFFSET, int(text))
    if text.startswith("-") and text[1:].isdigit():
        return StartAt(StartPosition.TAIL, int(text[1:]))
    if text[:1].isdigit() and text[-1].islower():
        return StartAt(StartPosition.TIME, parse_ago_ms(text))
    return StartAt(StartPosition.TIME, parse_time_ms(text.removeprefix("time:")))


def _formatter(
    plain: "Formatter", own_format: str | None, *, as_json: bool, as_hex: bool
) -> "Formatter":
    from moldau.cli.records import record_formats

    if as_json:
        if own_format is not None or as_hex:
            raise typer.BadParameter("--json, --hex and --format exclude each other.")
        return record_formats.json_lines
    chosen = plain if own_format is None else record_formats.of_tokens(own_format)
    if as_hex:
        return record_formats.after(record_formats.hexadecimal, chosen)
    if sys.stdout.isatty():
        return record_formats.after(record_formats.printable, chosen)
    return chosen
