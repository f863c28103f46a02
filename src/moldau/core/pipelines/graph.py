"""A pipeline as plain data, however it was written: datasets that come from outside, flows between
them, targets. Nothing here knows Spark; compiling is in moldau.pipelines.
"""

from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from typing import Any, TypeAlias

from moldau.frozen import frozen
from moldau.protocol.errors import MoldauError


class Mode(StrEnum):
    APPEND = "append"
    UPSERT = "upsert"
    """A record for each key that changed; a row that says `_deleted` becomes a tombstone."""
    COMPLETE = "complete"
    """All groups again in every batch."""


class OnError(StrEnum):
    DEAD_LETTER = "dead_letter"
    DROP = "drop"
    FAIL = "fail"


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class FormatKind(StrEnum):
    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    BYTES = "bytes"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json_schema"
    DEBEZIUM = "debezium"


class TableKind(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


@frozen
class Spot:
    """Where in a user's file; lines and columns count from 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@frozen
class Problem:
    spot: Spot
    text: str

    def __str__(self) -> str:
        return f"{self.spot}: {self.text}"


class PipelineError(MoldauError):
    """A pipeline that cannot be: one line for each thing that is wrong, with its place."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@frozen
class Format:
    """How values of a topic or file become columns, and back."""

    kind: FormatKind
    schema: str | None = None
    """Columns as Spark writes them: `id BIGINT, user STRING`."""
    options: tuple[tuple[str, str], ...] = ()


@frozen
class Expectation:
    """What has to be true of every row; a row for which it is null does not fulfil it."""

    name: str
    condition: str
    """In Spark SQL."""
    spot: Spot


@frozen(kw_only=True)
class Topic:
    name: str
    format: Format
    spot: Spot
    key: tuple[str, ...] = ()
    """Columns of the key."""
    compacted: bool = False
    partitions: int | None = None
    """Of a topic that is made, as are replication and config; None: the brokers' default."""
    replication: int | None = None
    config: tuple[tuple[str, str], ...] = ()
    start: str = "latest"
    """latest, earliest, group, or milliseconds since 1970."""
    dead_letter: str | None = None
    on_error: OnError = OnError.FAIL
    expect: tuple[Expectation, ...] = ()
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = ()
    """Of the record itself, given as `_key`, `_timestamp` and so on."""


@frozen(kw_only=True)
class Files:
    """A folder that gets new files."""

    path: str
    format: str
    """json, csv, text or parquet."""
    spot: Spot
    schema: str | None = None
    dead_letter: str | None = None
    on_error: OnError = OnError.FAIL
    expect: tuple[Expectation, ...] = ()
    max_files_per_trigger: int | None = None
    options: tuple[tuple[str, str], ...] = ()


@frozen
class Cursor:
    """Where an address goes on: sent as the query's `param`."""

    param: str
    last: str | None = None
    """The field of the last row which is sent."""
    next: str | None = None
    """The field of the answer which is sent."""
    start: str | None = None


@frozen(kw_only=True)
class Http:
    """An address that is asked again and again."""

    url: str
    format: Format
    spot: Spot
    is_lines: bool = False
    """Each line of an answer is a row; else the answer is one document of JSON."""
    every_ms: int = 10_000
    timeout_ms: int = 30_000
    attempts: int = 5
    headers: tuple[tuple[str, str], ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    path: str | None = None
    """Where in the document the rows are."""
    cursor: Cursor | None = None
    dead_letter: str | None = None
    on_error: OnError = OnError.FAIL
    expect: tuple[Expectation, ...] = ()


@frozen
class Catalog:
    """Of the user's own: its name, and what is not in the settings of pyiceberg under it."""

    name: str
    properties: tuple[tuple[str, str], ...] = ()


@frozen(kw_only=True)
class Table:
    path: str
    """A folder; in a catalog its name there."""
    kind: TableKind
    spot: Spot
    partition_by: tuple[str, ...] = ()
    catalog: Catalog | None = None
    schema: str | None = None
    """Of one that is looked up: what is read of it."""
    refresh_ms: int | None = None
    """Of one that is looked up: it is read again when so much time has passed; None: when a run
    begins.
    """


@frozen(kw_only=True)
class Postgres:
    """A table of a PostgreSQL server, to read by a column that grows, or to write into."""

    name: str
    """With its schema, or found as the server finds it."""
    spot: Spot
    url: str = ""
    """Without a password, or `env:NAME`; empty: what libpq's own variables say."""
    key: tuple[str, ...] = ()
    """Written: what an upsert goes by. Read: what tells rows apart whose `by` is equal."""
    by: str | None = None
    schema: str | None = None
    start: str = "earliest"
    """earliest, latest, or the value of `by` behind which reading begins."""
    lag_ms: int = 0
    max_rows_per_trigger: int | None = None
    tasks: int = 1
    dead_letter: str | None = None
    on_error: OnError = OnError.FAIL
    expect: tuple[Expectation, ...] = ()
    create: bool = True
    is_lookup: bool = False
    refresh_ms: int | None = None
    """As of a table."""


@frozen
class Sql:
    text: str
    spot: Spot
    indent: int | None = None
    """Of a block: its lines begin below the spot, so far to the right."""

    def spot_of(self, line: int, column: int) -> Spot:
        """Of a line and column of the text, both from 1."""
        if self.indent is not None:
            return Spot(self.spot.file, self.spot.line + line, self.indent + column)
        if line == 1:
            return Spot(self.spot.file, self.spot.line, self.spot.column + column - 1)
        return Spot(self.spot.file, self.spot.line + line - 1, column)


Source: TypeAlias = Topic | Files | Http | Postgres
Lookup: TypeAlias = Table | Postgres
"""Rows that are there, to join with those that come."""
Target: TypeAlias = Topic | Table | Postgres
Body: TypeAlias = Sql | Callable[..., Any]


@frozen(kw_only=True)
class Flow:
    name: str
    inputs: tuple[str, ...]
    body: Body
    spot: Spot
    into: Target | None = None
    """None: only other flows read it."""
    mode: Mode = Mode.APPEND
    on_error: OnError | None = None
    """Of rows whose column `_error` says something, and of those that are not as expected; None:
    that column means nothing.
    """
    expect: tuple[Expectation, ...] = ()

    @property
    def judges_alone(self) -> bool:
        """Nobody writes its rows; those that are not as expected are still sent or counted."""
        return self.into is None and bool(self.expect) and self.on_error is not OnError.FAIL


@frozen
class Example:
    """Rows in, rows out: a test written beside the flows."""

    name: str
    given: dict[str, list[dict[str, Any]]]
    expect: dict[str, list[dict[str, Any]]]
    spot: Spot


@frozen(kw_only=True)
class Trigger:
    every_ms: int | None = None
    """None: as soon as the last batch is done."""
    available_now: bool = False


@frozen(kw_only=True)
class Pipeline:
    name: str
    spot: Spot
    sources: dict[str, Source] = field(default_factory=dict)
    lookups: dict[str, Lookup] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)
    delivery: Delivery = Delivery.EXACTLY_ONCE
    trigger: Trigger = field(default_factory=Trigger)
    examples: tuple[Example, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    """Of the clients, such as bootstrap.servers."""
    brokers_from: str = "the default"
    """Who said bootstrap.servers."""
    checkpoint: str | None = None
    unread: tuple[str, ...] = ()
    """Names of declared datasets that no flow reads, for hints at what may have been meant."""
