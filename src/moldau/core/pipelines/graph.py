"""A pipeline as plain data, whether it was declared in Python or YAML: sources, flows and targets.
Nothing here depends on Spark; moldau.pipelines compiles it.
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
    """Writes a record for each changed key; a row with `_deleted` becomes a tombstone."""
    COMPLETE = "complete"
    """Writes all groups in every batch."""


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
    """A place in a user's file; lines and columns count from 1."""

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
    """The pipeline is invalid. The text has a line for each problem, with its place in the user's
    file.
    """

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@frozen
class Format:
    """The conversion between values of a topic or file and columns."""

    kind: FormatKind
    schema: str | None = None
    """Columns in Spark's DDL: `id BIGINT, user STRING`."""
    options: tuple[tuple[str, str], ...] = ()


@frozen
class Expectation:
    """A condition on every row. A row for which it is null fails."""

    name: str
    condition: str
    """A Spark SQL expression."""
    spot: Spot


@frozen(kw_only=True)
class Topic:
    name: str
    format: Format
    spot: Spot
    key: tuple[str, ...] = ()
    """The columns that form the key."""
    compacted: bool = False
    partitions: int | None = None
    """Used when the topic is created, like replication and config; None: the brokers' default."""
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
    """Columns of the record itself, added as `_key`, `_timestamp` and so on."""


@frozen(kw_only=True)
class Files:
    """A folder to which files are added."""

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
    """The position in a polled address, sent as the query parameter `param`."""

    param: str
    last: str | None = None
    """The field of the last row whose value is sent."""
    next: str | None = None
    """The field of the response whose value is sent."""
    start: str | None = None


@frozen(kw_only=True)
class Http:
    """A URL that is polled."""

    url: str
    format: Format
    spot: Spot
    is_lines: bool = False
    """Each line of a response is a row; otherwise the response is one JSON document."""
    every_ms: int = 10_000
    timeout_ms: int = 30_000
    attempts: int = 5
    headers: tuple[tuple[str, str], ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    path: str | None = None
    """The path of the rows in the document."""
    cursor: Cursor | None = None
    dead_letter: str | None = None
    on_error: OnError = OnError.FAIL
    expect: tuple[Expectation, ...] = ()


@frozen
class Catalog:
    """An Iceberg catalog: its name, and properties in addition to pyiceberg's settings."""

    name: str
    properties: tuple[tuple[str, str], ...] = ()


@frozen(kw_only=True)
class Table:
    path: str
    """A folder, or the table's name in a catalog."""
    kind: TableKind
    spot: Spot
    partition_by: tuple[str, ...] = ()
    catalog: Catalog | None = None
    schema: str | None = None
    """For a lookup: the columns to read."""
    refresh_ms: int | None = None
    """For a lookup: how often it is read again; None: only when a run begins."""


@frozen(kw_only=True)
class Postgres:
    """A PostgreSQL table, to read by a growing column, or to write to."""

    name: str
    """With a schema, or resolved by the server's search path."""
    spot: Spot
    url: str = ""
    """Without a password, or `env:NAME`. If empty, libpq's environment variables apply."""
    key: tuple[str, ...] = ()
    """For writing: the key of an upsert. For reading: distinguishes rows with equal `by`."""
    by: str | None = None
    schema: str | None = None
    start: str = "earliest"
    """earliest, latest, or the value of `by` after which reading begins."""
    lag_ms: int = 0
    max_rows_per_trigger: int | None = None
    tasks: int = 1
    dead_letter: str | None = None
    on_error: OnError = OnError.FAIL
    expect: tuple[Expectation, ...] = ()
    create: bool = True
    is_lookup: bool = False
    refresh_ms: int | None = None
    """As for Table."""


@frozen
class Sql:
    text: str
    spot: Spot
    indent: int | None = None
    """For a block: its lines begin below the spot, indented by this many columns."""

    def spot_of(self, line: int, column: int) -> Spot:
        """The spot of a line and column of the text, both counted from 1."""
        if self.indent is not None:
            return Spot(self.spot.file, self.spot.line + line, self.indent + column)
        if line == 1:
            return Spot(self.spot.file, self.spot.line, self.spot.column + column - 1)
        return Spot(self.spot.file, self.spot.line + line - 1, column)


Source: TypeAlias = Topic | Files | Http | Postgres
Lookup: TypeAlias = Table | Postgres
"""Static rows to join with a stream."""
Target: TypeAlias = Topic | Table | Postgres
Body: TypeAlias = Sql | Callable[..., Any]


@frozen(kw_only=True)
class Flow:
    name: str
    inputs: tuple[str, ...]
    body: Body
    spot: Spot
    into: Target | None = None
    """None if only other flows read it."""
    mode: Mode = Mode.APPEND
    on_error: OnError | None = None
    """For rows with a value in the column `_error`, and for rows that fail an expectation. None:
    the column has no special meaning.
    """
    expect: tuple[Expectation, ...] = ()

    @property
    def only_checks_rows(self) -> bool:
        """The flow has no target, but its failed rows must be sent or counted."""
        return self.into is None and bool(self.expect) and self.on_error is not OnError.FAIL


@frozen
class Example:
    """A test of the flows: input rows and the expected output rows."""

    name: str
    given: dict[str, list[dict[str, Any]]]
    expect: dict[str, list[dict[str, Any]]]
    spot: Spot


@frozen(kw_only=True)
class Trigger:
    every_ms: int | None = None
    """None: as soon as the previous batch is done."""
    available_now: bool = False


@frozen(kw_only=True)
class Pipeline:
    """A declared pipeline, as `load` returns it: its datasets, flows, tests and settings."""

    name: str
    spot: Spot
    sources: dict[str, Source] = field(default_factory=dict)
    lookups: dict[str, Lookup] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)
    delivery: Delivery = Delivery.EXACTLY_ONCE
    trigger: Trigger = field(default_factory=Trigger)
    examples: tuple[Example, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of the clients, such as bootstrap.servers."""
    brokers_from: str = "the default"
    """Where bootstrap.servers was set."""
    checkpoint: str | None = None
    unread: tuple[str, ...] = ()
    """Declared datasets that no flow reads, for hints in error messages."""
