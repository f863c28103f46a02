"""Answers of HTTP: asked for, and kept in a folder until the batch that reads them is done, so that
a batch that is run again sees the same rows.
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
    is_passing,
    read_position,
    write_position,
)
from moldau.core.spark.errors import HttpError
from moldau.storage.disk.disk_calls import sync_file, sync_folder

BODY_BYTES_MAX = 64 * 1024 * 1024
_NOT_MODIFIED = 304
_TOLD_MAX = 200


class PassingError(HttpError):
    """It may go well if it is tried again."""


class Answer(NamedTuple):
    body: bytes
    marks: dict[str, str]
    """Headers, in lower case."""


class _SameHost(HTTPRedirectHandler):
    """Other hosts must not see the headers, which may hold secrets."""

    def redirect_request(self, *given: Any) -> Request | None:
        request, newurl = given[0], given[-1]
        if urlsplit(newurl).netloc != urlsplit(request.full_url).netloc:
            raise HttpError(f"{request.full_url} sends on to {newurl}; write that address")
        return super().redirect_request(*given)


def ask(options: HttpOptions, place: PollPosition) -> Answer | None:
    """None: nothing has changed. Raises HttpError."""
    address = address_of(options, place)
    headers = dict(options.headers)
    # Of another page they would say nothing.
    if place.etag is not None and options.cursor_param is None:
        headers["If-None-Match"] = place.etag
    if place.modified is not None and options.cursor_param is None:
        headers["If-Modified-Since"] = place.modified
    request = Request(address, headers=headers)  # noqa: S310 - http or https
    opener = build_opener(_SameHost)
    try:
        with opener.open(request, timeout=options.timeout_ms / 1000) as response:
            body = response.read(BODY_BYTES_MAX + 1)
            marks = {name.lower(): value for name, value in response.headers.items()}
    except HTTPError as error:
        with error:
            if error.code == _NOT_MODIFIED:
                return None
            text = " ".join(error.read(_TOLD_MAX).decode(errors="replace").split())
        told = f"{address}: {error.code} {error.reason}" + (f": {text}" if text else "")
        raise (PassingError if is_passing(error.code) else HttpError)(told) from None
    except TimeoutError:
        raise PassingError(f"{address}: no answer within {options.timeout_ms} ms") from None
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise PassingError(f"{address}: no answer: {reason!s}") from None
    if len(body) > BODY_BYTES_MAX:
        raise HttpError(f"{address}: the answer is larger than {BODY_BYTES_MAX} bytes")
    return Answer(body, marks)


class KeptAnswers:
    """One file for each answer that counts: its place in one line, then its body."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def _file(self, poll: int) -> Path:
        return self._folder / f"{poll:012d}"

    def keep(self, place: PollPosition, body: bytes) -> PollPosition:
        """When this returns, it stays whatever happens. A process of a run that was killed may
        have been quicker: its answer is the one that counts then, and its place is given back.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        beside = self._file(place.poll).with_suffix(f".{os.getpid()}")
        with beside.open("wb") as out:
            out.write(json.dumps(write_position(place)).encode() + b"\n" + body)
            out.flush()
            sync_file(out.fileno())
        with suppress(FileExistsError):
            self._file(place.poll).hardlink_to(beside)
        beside.unlink()
        sync_folder(self._folder)
        return self.place_of(place.poll) or place

    def place_of(self, poll: int) -> PollPosition | None:
        """None: it is not there, or was never all there."""
        found = self._read(poll)
        return None if found is None else found[0]

    def body_of(self, poll: int) -> bytes:
        """Raises HttpError."""
        found = self._read(poll)
        if found is None:
            raise HttpError(
                f"answer {poll} is not in {self._folder}; it is kept there until its batch is "
                "done, and belongs to the checkpoint"
            )
        return found[1]

    def _read(self, poll: int) -> tuple[PollPosition, bytes] | None:
        try:
            first, _, body = self._file(poll).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        place = read_position(json.loads(first))
        if place.digest != digest_of_body(body):
            raise HttpError(f"{self._file(poll)} is damaged")
        return place, body

    def forget(self, up_to: int) -> None:
        for file in self._folder.glob("[0-9]*"):
            if file.stem.isdecimal() and int(file.stem) <= up_to:
                file.unlink(missing_ok=True)
