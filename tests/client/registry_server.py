"""A schema registry for tests: Confluent's REST interface, kept in memory."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit


class RegistryServer:
    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests = 0
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                self._answer(json.loads(self.rfile.read(length)))

            def _answer(self, body: dict[str, Any] | None) -> None:
                path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
                status, answer = registry.answer(path, body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: list[str], body: dict[str, Any] | None) -> tuple[int, Any]:
        self.requests += 1
        match path:
            case ["subjects", subject, "versions"] if body is not None:
                return 200, {"id": self._register(subject, body)}
            case ["subjects", subject] if body is not None:
                return self._lookup(subject, body)
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                return 200, self.schemas[self.subjects[subject][int(version) - 1] - 1]
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        schema = {key: body[key] for key in ("schema", "schemaType", "references") if body.get(key)}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def _lookup(self, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        for version, number in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[number - 1]["schema"] == body["schema"]:
                return 200, {"subject": subject, "id": number, "version": version, **body}
        return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
