"""Connections to a PostgreSQL server, descriptions of its tables, and its errors in one line.
Passwords are never part of a pipeline: they come from libpq's own settings, or with `env:NAME`.
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
"""How long connecting is retried while the server is unavailable, for example during a restart."""
_PAUSE_S = 0.5
_CONNECT_TIMEOUT_S = 10
_CLIENT_CHECK_VERSION_MIN = 140000
_ENVIRONMENT = "env:"
# Texts of errors that waiting does not fix; libpq gives them no code.
_PERMANENT = ("password", "authentication", "pg_hba.conf", "does not exist")
_HINTS = {
    "42501": "the owner can grant the privilege to the user of the url with GRANT",
    "42P10": "an upsert needs a primary key or unique index on exactly the columns of key",
    "23505": "use mode upsert with a key to replace rows",
    "21000": "the key is not unique in the rows",
}


class PostgresError(MoldauError):
    """An error of the server or of the connection, in one line."""


class ServerLostError(PostgresError):
    """The connection broke; the statement may or may not have been executed."""


def driver() -> Any:
    """Raises MoldauError."""
    try:
        import psycopg
    except ImportError:
        raise MoldauError("PostgreSQL needs psycopg: pip install 'moldau[postgres]'") from None
    return psycopg


@contextmanager
def connected(url: str, table: str, patience_s: float = PATIENCE_S) -> Iterator[Any]:
    """A connection in autocommit. Errors of psycopg inside the block become PostgresError."""
    psycopg = driver()
    connection = _connect(psycopg, url, table, patience_s)
    try:
        try:
            connection.execute(
                "SET timezone TO 'UTC'; SET datestyle TO 'ISO'; SET intervalstyle TO 'iso_8601'; "
                "SET bytea_output TO 'hex'; SET extra_float_digits TO 1"
            )
            if connection.info.server_version >= _CLIENT_CHECK_VERSION_MIN:
                # Releases the locks of a killed driver before TCP notices that it is gone.
                connection.execute("SET client_connection_check_interval TO '5s'")
            yield connection
        except psycopg.Error as error:
            raise _postgres_error(psycopg, error, table, is_lost=connection.broken) from None
    finally:
        connection.close()


def _connect(psycopg: Any, url: str, table: str, patience_s: float) -> Any:
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
            raise PostgresError(f"{table}: the url is invalid: {_line(error)}") from None
        except psycopg.OperationalError as error:
            line = _line(error)
            if any(word in line for word in _PERMANENT):
                raise PostgresError(f"{table}: {line}") from None
            if time.monotonic() >= until:
                raise ServerLostError(f"{table}: {line}") from None
        pause.wait(_PAUSE_S)


def _resolved(url: str) -> str:
    if not url.startswith(_ENVIRONMENT):
        return url
    name = url[len(_ENVIRONMENT) :]
    resolved = os.environ.get(name)
    if not resolved:
        raise PostgresError(f"environment variable {name} is not set; set it to the url")
    return resolved


def _postgres_error(psycopg: Any, error: Any, table: str, *, is_lost: bool) -> PostgresError:
    if is_lost or isinstance(error, psycopg.OperationalError):
        return ServerLostError(f"{table}: {_line(error)}")
    message = error.diag.message_primary or _line(error)
    hint = _HINTS.get(error.sqlstate or "", "")
    return PostgresError(f"{table}: {message}{'; ' if hint else ''}{hint}")


def _line(error: BaseException) -> str:
    parts = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(parts)


class Column(NamedTuple):
    name: str
    kind: str
    """The type in the server's notation: `numeric(10,2)`."""


def columns_of(connection: Any, table: str) -> list[Column]:
    """The columns of a table; empty if it does not exist."""
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [_quoted_name(table)],
    )
    return [Column(*row) for row in rows]


def unique_keys_of(connection: Any, table: str, by: str) -> list[tuple[str, ...]]:
    """Columns of the primary key, then those of unique indexes. Only `by` may be null: a null is
    neither before nor after a value.
    """
    rows = connection.execute(
        "SELECT array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum)) "
        "FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "AND a.attnum = ANY(i.indkey::int2[]) WHERE i.indrelid = to_regclass(%s) AND i.indisunique "
        "AND i.indpred IS NULL AND i.indexprs IS NULL "
        "GROUP BY i.indexrelid, i.indisprimary HAVING bool_and(a.attnotnull OR a.attname = %s) "
        "ORDER BY i.indisprimary DESC",
        [_quoted_name(table), by],
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


def _quoted_name(table: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split(".", 1))
