"""Requests of other nodes that wait for the machine's response. Records and pieces of snapshots are
added here, without waiting for the disk in the event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from moldau.broker.quorum.metadata_log import MetadataLog
from moldau.broker.records.cold_reads import ColdReads
from moldau.core.quorum.events import (
    Abandoned,
    Requested,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    Token,
)
from moldau.core.quorum.rpc import FetchSnapshotResponse, Request, Response
from moldau.net.tasks import Tasks
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.log.read import Isolation, ReadResult

Answer: TypeAlias = Respond | RespondWithRecords | RespondWithSnapshot


class WaitingRequests:
    def __init__(self, cold_reads: ColdReads) -> None:
        self._cold_reads = cold_reads
        self._tasks = Tasks()
        self._tokens = count()
        self._waiting: dict[Token, asyncio.Future[Response]] = {}

    async def answer(
        self, request: Request, feed: Callable[[Requested | Abandoned], None]
    ) -> Response:
        """`feed` takes the events for the machine. Raises KafkaError if the request is refused
        because the node stops, or because its disk fails.
        """
        token = next(self._tokens)
        done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[token] = done
        try:
            feed(Requested(token, request))
            return await done
        except asyncio.CancelledError:
            feed(Abandoned(token))
            raise
        finally:
            del self._waiting[token]

    def perform(self, answer: Answer, log: MetadataLog) -> None:
        if answer.token not in self._waiting:
            # The caller is gone.
            return
        match answer:
            case Respond(token, response):
                self._respond(token, response)
            case RespondWithRecords():
                self._begin_reading(answer, log)
            case RespondWithSnapshot(token):
                _ = self._tasks.start(self._add_piece(answer, log), "read a snapshot")

    def refuse_all(self, error: KafkaError) -> None:
        for token in self._waiting:
            self._refuse(token, error)

    async def stop(self) -> None:
        await self._tasks.close()
        self._cold_reads.close()

    # Records

    def _begin_reading(self, answer: RespondWithRecords, log: MetadataLog) -> None:
        """At once if the page cache has them, which is the rule: they were just written."""
        reads = self._cold_reads.reads()
        reads.next_log(answer.max_bytes)
        isolation = Isolation.LOG_END
        try:
            found = log.log.find(answer.offset, answer.max_bytes, reads, isolation=isolation)
            read = log.log.take(found, reads)
        except NotCachedError:
            _ = self._tasks.start(self._add_records(answer, log), "read metadata for a follower")
        except KafkaError as error:
            self._refuse(answer.token, error)
        else:
            self._respond_with(answer, read)

    async def _add_records(self, answer: RespondWithRecords, log: MetadataLog) -> None:
        truncations = log.truncations
        try:
            read = await self._cold_reads.read(
                log.log, answer.offset, answer.max_bytes, isolation=Isolation.LOG_END
            )
        except KafkaError as error:
            self._refuse(answer.token, error)
            return
        if log.truncations != truncations:
            # These are not the records that the response is about.
            detail = "this node does not lead the metadata quorum any longer"
            self._refuse(answer.token, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, detail))
            return
        self._respond_with(answer, read)

    def _respond_with(self, answer: RespondWithRecords, read: ReadResult) -> None:
        self._respond(answer.token, replace(answer.response, records=bytes(read.records)))

    # Snapshots

    async def _add_piece(self, answer: RespondWithSnapshot, log: MetadataLog) -> None:
        response = answer.response
        assert response.snapshot is not None
        try:
            with log.directory.offline_on_read_error:
                content = await asyncio.to_thread(
                    log.snapshot_bytes, response.snapshot, response.position, answer.max_bytes
                )
        except KafkaError as error:
            self._refuse(answer.token, error)
            return
        if content is None:
            response = FetchSnapshotResponse(
                error=ErrorCode.SNAPSHOT_NOT_FOUND, leadership=response.leadership
            )
        else:
            response = replace(response, content=content)
        self._respond(answer.token, response)

    def _respond(self, token: Token, response: Response) -> None:
        done = self._waiting.get(token)
        if done is not None and not done.done():
            done.set_result(response)

    def _refuse(self, token: Token, error: KafkaError) -> None:
        done = self._waiting.get(token)
        if done is not None and not done.done():
            done.set_exception(error)
