"""Talking to a PostgreSQL server: connections, what its tables are, and what went wrong in a line.
Passwords are never part of a pipeline: they come from libpq's own places, or with `env:NAME`.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from moldau.core.spark.errors import suggestion
from moldau.protocol.errors import MoldauError

PATIENCE_S = 60.0
"""So long a server that was there may be away: it is being restarted, say."""
_PAUSE_S = 0.5
_CONNECT_TIMEOUT_S = 10
_CHECKS_CLIENTS_FROM = 140000
_ENVIRONMENT = "env:"
# What waiting does not mend; libpq gives such errors no number.
_FINAL = ("password", "authentication", "pg_hba.conf", "does not exist")
_HINTS = {
    "42501": "ask its owner for the right, GRANT … TO the user of the url",
    "42P10": "an upsert needs a primary key or unique index on exactly the columns of key",
    "23505": "mode upsert with a key replaces rows",
    "21000": "the key does not tell the rows apart",
}


class PostgresError(MoldauError):
    """What the server, or the way to it, says in one line."""


class ServerLostError(PostgresError):
    """The connection broke; what it was doing may or may not be done."""


def driver() -> Any:
    """Raises MoldauError."""
    try:
        import psycopg
    except ImportError:
        raise MoldauError("PostgreSQL needs psycopg: pip install 'moldau[postgres]'") from None
    return psycopg


@contextmanager
def connected(url: str, what: str, patience_s: float = PATIENCE_S) -> Iterator[Any]:
    """A connection in autocommit; what fails inside is told in one line too."""
    psycopg = driver()
    connection = _connect(psycopg, url, what, patience_s)
    try:
        try:
            connection.execute(
                "SET timezone TO 'UTC'; SET datestyle TO 'ISO'; SET intervalstyle TO 'iso_8601'; "
                "SET bytea_output TO 'hex'; SET extra_float_digits TO 1"
            )
            if connection.info.server_version >= _CHECKS_CLIENTS_FROM:
                # Locks of a driver that was killed are not kept until TCP notices.
                connection.execute("SET client_connection_check_interval TO '5s'")
            yield connection
        except psycopg.Error as error:
            raise _told(psycopg, error, what, is_lost=connection.broken) from None
    finally:
        connection.close()


def _connect(psycopg: Any, url: str, what: str, patience_s: float) -> Any:
    until = time.monotonic() + patience_s
    pause = threading.Event()
    while True:
        try:
            return psycopg.connect(
                _resolved(url),
                autocommit=True,
                connect_timeout=_CONNECT_TIMEOUT_S,
                application_name="moldau pipeline",
            )
        except psycopg.ProgrammingError as error:
            raise PostgresError(f"{what}: the url cannot be read: {_line(error)}") from None
        except psycopg.OperationalError as error:
            line = _line(error)
            if any(word in line for word in _FINAL):
                raise PostgresError(f"{what}: {line}") from None
            if time.monotonic() >= until:
                raise ServerLostError(f"{what}: {line}") from None
        pause.wait(_PAUSE_S)


def _resolved(url: str) -> str:
    if not url.startswith(_ENVIRONMENT):
        return url
    name = url[len(_ENVIRONMENT) :]
    found = os.environ.get(name)
    if not found:
        raise PostgresError(f"the environment has no {name}, where the url of PostgreSQL should be")
    return found


def _told(psycopg: Any, error: Any, what: str, *, is_lost: bool) -> PostgresError:
    if is_lost or isinstance(error, psycopg.OperationalError):
        return ServerLostError(f"{what}: {_line(error)}")
    said = error.diag.message_primary or _line(error)
    hint = _HINTS.get(error.sqlstate or "", "")
    return PostgresError(f"{what}: {said}{'; ' if hint else ''}{hint}")


def _line(error: BaseException) -> str:
    parts = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(parts)


class Column(NamedTuple):
    name: str
    kind: str
    """As the server writes it: `numeric(10,2)`."""


def columns_of(connection: Any, table: str) -> list[Column]:
    """Empty: there is no such table."""
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [_written_name(table)],
    )
    return [Column(*row) for row in rows]


def unique_keys_of(connection: Any, table: str, by: str) -> list[tuple[str, ...]]:
    """Columns of the primary key, then of unique indexes. None but `by` may be null: that is
    neither before nor behind a value.
    """
    rows = connection.execute(
        "SELECT array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum)) "
        "FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "AND a.attnum = ANY(i.indkey::int2[]) WHERE i.indrelid = to_regclass(%s) AND i.indisunique "
        "AND i.indpred IS NULL AND i.indexprs IS NULL "
        "GROUP BY i.indexrelid, i.indisprimary HAVING bool_and(a.attnotnull OR a.attname = %s) "
        "ORDER BY i.indisprimary DESC",
        [_written_name(table), by],
    )
    return [tuple(row[0]) for row in rows]


def no_such_table(connection: Any, table: str) -> PostgresError:
    rows = connection.execute(
        "SELECT CASE WHEN pg_table_is_visible(oid) THEN relname ELSE "
        "relnamespace::regnamespace || '.' || relname END FROM pg_class "
        "WHERE relkind IN ('r', 'p', 'v', 'm', 'f') "
        "AND relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema')"
    )
    return PostgresError(
        f"there is no table {table}{suggestion(table, [str(row[0]) for row in rows])}"
    )


def _written_name(table: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split(".", 1))
