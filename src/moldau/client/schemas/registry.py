"""A client of a schema registry with Confluent's REST interface. Each schema is requested once.
Calls block the thread that serializes.
"""

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from moldau.client.errors import ClientError

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_SCHEMAS_MAX = 10_000
AVRO = "AVRO"


class SchemaError(ClientError):
    """The registry refused a request or is unreachable, or a value does not fit its schema."""


class Reference(NamedTuple):
    """A schema that another one refers to, by its subject and version."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """The text of a schema, its kind (AVRO, JSON, PROTOBUF) and the schemas that it refers to."""

    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()


class SchemaRegistry:
    """A schema registry. Any thread may use it."""

    def __init__(
        self,
        url: str,
        *,
        basic_auth: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> None:
        """Checks the address. The first call sends the first request.

        Args:
            url: Address of the registry, `http://host:port`; may contain `user:password@`.
            basic_auth: User and password, if they are not in the address.
            headers: Additional headers of every request.
            timeout: How many seconds a request may take.

        Raises:
            SchemaError: The address is not a URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise SchemaError(f"'{url}' is not the address of a registry; write http://host:port")
        if parts.username and basic_auth is None:
            basic_auth = parts.username, parts.password or ""
        location = parts.netloc.rpartition("@")[2]
        self._url = urlunsplit((parts.scheme, location, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE, **(headers or {})}
        if basic_auth is not None:
            token = base64.b64encode(":".join(basic_auth).encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._timeout_s = timeout
        self._lock = threading.Lock()
        self._ids: dict[tuple[str, Schema], int] = {}
        self._schemas: dict[int, Schema] = {}

    def register(self, subject: str, schema: Schema) -> int:
        """Registers a schema under a subject. A schema that is registered already keeps its id.

        Args:
            subject: The subject.
            schema: The schema.

        Returns:
            The id of the schema.

        Raises:
            SchemaError: The registry refused it or is unreachable.
        """
        return self._id(subject, schema, f"/subjects/{quote(subject, safe='')}/versions")

    def lookup(self, subject: str, schema: Schema) -> int:
        """Looks up the id of a schema that is registered already.

        Args:
            subject: The subject.
            schema: The schema.

        Returns:
            The id of the schema.

        Raises:
            SchemaError: It is not registered, or the registry is unreachable.
        """
        return self._id(subject, schema, f"/subjects/{quote(subject, safe='')}")

    def version(self, subject: str, schema: Schema) -> int:
        """Looks up the version of a schema that is registered under a subject.

        Args:
            subject: The subject.
            schema: The schema.

        Returns:
            The version, counted from 1 within the subject.

        Raises:
            SchemaError: It is not registered, or the registry is unreachable.
        """
        answer = self._send(f"/subjects/{quote(subject, safe='')}", _body(schema))
        return int(answer["version"])

    def schema(self, schema_id: int) -> Schema:
        """Returns the schema with an id, from the registry or from memory.

        Args:
            schema_id: The id.

        Raises:
            SchemaError: There is no such schema, or the registry is unreachable.
        """
        with self._lock:
            found = self._schemas.get(schema_id)
        if found is None:
            answer = self._send(f"/schemas/ids/{schema_id}")
            found = Schema(
                answer["schema"],
                answer.get("schemaType", AVRO),
                _references(answer.get("references", ())),
            )
            with self._lock:
                if len(self._schemas) >= _SCHEMAS_MAX:
                    self._schemas.clear()
                self._schemas[schema_id] = found
        return found

    def referenced(self, reference: Reference) -> Schema:
        """Returns the schema that another one refers to.

        Args:
            reference: The reference, one of `Schema.references`.

        Raises:
            SchemaError: There is no such schema, or the registry is unreachable.
        """
        subject = quote(reference.subject, safe="")
        answer = self._send(f"/subjects/{subject}/versions/{reference.version}")
        return Schema(
            answer["schema"],
            answer.get("schemaType", AVRO),
            _references(answer.get("references", ())),
        )

    def _id(self, subject: str, schema: Schema, path: str) -> int:
        with self._lock:
            found = self._ids.get((subject, schema))
        if found is None:
            found = int(self._send(path, _body(schema))["id"])
            with self._lock:
                if len(self._ids) >= _SCHEMAS_MAX:
                    self._ids.clear()
                self._ids[subject, schema] = found
        return found

    def _send(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, content, self._headers)  # noqa: S310 - http or https
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310 - as above
                return json.load(answer)
        except HTTPError as error:
            with error:
                raise SchemaError(f"the registry refused the request: {_reason(error)}") from None
        except (URLError, TimeoutError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SchemaError(f"no answer from the registry at {self._url}: {reason}") from None


def _reason(error: HTTPError) -> str:
    try:
        problem = json.load(error)
        return f"{problem['message']} ({problem['error_code']})"
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != AVRO:
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    return body


def _references(rows: Sequence[Mapping[str, Any]]) -> tuple[Reference, ...]:
    return tuple(Reference(row["name"], row["subject"], int(row["version"])) for row in rows)
