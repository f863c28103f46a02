"""Requests of other nodes that wait for the machine's response. Records and snapshots are added
here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from moldau.broker.quorum.metadata_log import MetadataLog
from moldau.core.quorum.events import (
    Abandoned,
    Requested,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    Token,
)
from moldau.core.quorum.rpc import Request, Response
from moldau.protocol.errors import KafkaError
from moldau.storage.log.read import Isolation

Answer: TypeAlias = Respond | RespondWithRecords | RespondWithSnapshot


class WaitingRequests:
    def __init__(self, feed: Callable[[Requested | Abandoned], None]) -> None:
        """`feed` takes the events for the machine."""
        self._feed = feed
        self._tokens = count()
        self._waiting: dict[Token, asyncio.Future[Response]] = {}

    async def answer(self, request: Request) -> Response:
        """Raises KafkaError if the node stops before it has answered."""
        token = next(self._tokens)
        done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[token] = done
        try:
            self._feed(Requested(token, request))
            return await done
        except asyncio.CancelledError:
            self._feed(Abandoned(token))
            raise
        finally:
            del self._waiting[token]

    def perform(self, answer: Answer, log: MetadataLog) -> None:
        match answer:
            case Respond(token, response):
                self._respond(token, response)
            case RespondWithRecords(token, response, offset, max_bytes):
                found = log.log.read(offset, max_bytes, isolation=Isolation.LOG_END)
                self._respond(token, replace(response, records=bytes(found.records)))
            case RespondWithSnapshot(token, response, max_bytes):
                assert response.snapshot is not None
                content = log.snapshot_bytes(response.snapshot, response.position, max_bytes)
                self._respond(token, replace(response, content=content))

    def _respond(self, token: Token, response: Response) -> None:
        """Does nothing if the caller is gone."""
        done = self._waiting.get(token)
        if done is not None and not done.done():
            done.set_result(response)

    def refuse_all(self, error: KafkaError) -> None:
        for done in self._waiting.values():
            if not done.done():
                done.set_exception(error)
