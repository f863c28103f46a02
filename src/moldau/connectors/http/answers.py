"""Polls an address, and keeps the responses in a folder until their batch is done, so that a batch
that runs again sees the same rows.
"""

import json
import os
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from moldau.core.connectors.http_polling import (
    HttpOptions,
    PollPosition,
    address_of,
    digest_of_body,
    is_transient,
    read_position,
    write_position,
)
from moldau.core.spark.errors import HttpError
from moldau.storage.disk.disk_calls import sync_file, sync_folder

BODY_BYTES_MAX = 64 * 1024 * 1024
_NOT_MODIFIED = 304
_ERROR_BODY_MAX = 200


class TransientError(HttpError):
    """A retry may succeed."""


class Answer(NamedTuple):
    body: bytes
    headers: dict[str, str]
    """Response headers, with names in lower case."""


class _SameHost(HTTPRedirectHandler):
    """Follows redirects only to the same host: the headers may hold secrets."""

    def redirect_request(self, *given: Any) -> Request | None:
        request, newurl = given[0], given[-1]
        if urlsplit(newurl).netloc != urlsplit(request.full_url).netloc:
            raise HttpError(f"{request.full_url} redirects to {newurl}; use that address")
        return super().redirect_request(*given)


def request_answer(options: HttpOptions, position: PollPosition) -> Answer | None:
    """Requests the next answer. Returns None if nothing has changed. Raises HttpError."""
    address = address_of(options, position)
    headers = dict(options.headers)
    # With a cursor each request is for another page, which these headers do not describe.
    if position.etag is not None and options.cursor_param is None:
        headers["If-None-Match"] = position.etag
    if position.modified is not None and options.cursor_param is None:
        headers["If-Modified-Since"] = position.modified
    request = Request(address, headers=headers)  # noqa: S310 - http or https
    opener = build_opener(_SameHost)
    try:
        with opener.open(request, timeout=options.timeout_ms / 1000) as response:
            body = response.read(BODY_BYTES_MAX + 1)
            response_headers = {name.lower(): value for name, value in response.headers.items()}
    except HTTPError as error:
        with error:
            if error.code == _NOT_MODIFIED:
                return None
            body_text = " ".join(error.read(_ERROR_BODY_MAX).decode(errors="replace").split())
        line = f"{address}: {error.code} {error.reason}" + (f": {body_text}" if body_text else "")
        raise (TransientError if is_transient(error.code) else HttpError)(line) from None
    except TimeoutError:
        raise TransientError(f"{address}: no answer within {options.timeout_ms} ms") from None
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise TransientError(f"{address}: no answer: {reason!s}") from None
    if len(body) > BODY_BYTES_MAX:
        raise HttpError(f"{address}: the answer is larger than {BODY_BYTES_MAX} bytes")
    return Answer(body, response_headers)


class KeptAnswers:
    """A folder with a file for each answer: its position in one line, then its body."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def _file(self, poll: int) -> Path:
        return self._folder / f"{poll:012d}"

    def keep(self, position: PollPosition, body: bytes) -> PollPosition:
        """Stores an answer durably, unless a process of a killed run has stored one for the same
        poll before. Returns the position of the stored answer.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._file(position.poll).with_suffix(f".{os.getpid()}")
        with partial.open("wb") as out:
            out.write(json.dumps(write_position(position)).encode() + b"\n" + body)
            out.flush()
            sync_file(out.fileno())
        with suppress(FileExistsError):
            self._file(position.poll).hardlink_to(partial)
        partial.unlink()
        sync_folder(self._folder)
        return self.position_of(position.poll) or position

    def position_of(self, poll: int) -> PollPosition | None:
        """The position of an answer; None if it is not stored."""
        stored = self._read(poll)
        return None if stored is None else stored[0]

    def body_of(self, poll: int) -> bytes:
        """Raises HttpError."""
        stored = self._read(poll)
        if stored is None:
            raise HttpError(
                f"answer {poll} is not in {self._folder}; the folder belongs to the checkpoint, "
                "restore both together"
            )
        return stored[1]

    def _read(self, poll: int) -> tuple[PollPosition, bytes] | None:
        try:
            first, _, body = self._file(poll).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        position = read_position(json.loads(first))
        if position.digest != digest_of_body(body):
            raise HttpError(f"{self._file(poll)} is damaged")
        return position, body

    def forget(self, up_to: int) -> None:
        for file in self._folder.glob("[0-9]*"):
            if file.stem.isdecimal() and int(file.stem) <= up_to:
                file.unlink(missing_ok=True)
