"""A pipeline at work: its queries are started, watched, and stopped between two batches."""

import json
import os
import threading
from collections.abc import Callable
from typing import Any

from moldau.core.pipelines.graph import Pipeline, Table
from moldau.pipelines.batches import BatchWork, StoppedError
from moldau.pipelines.checkpoint_notes import CheckpointNotes
from moldau.pipelines.compiling import Query, compile_queries, memory_of, query_frame
from moldau.pipelines.flow_frames import short_text
from moldau.pipelines.progress import QueryProgress, progress_of
from moldau.pipelines.run_folder import RunFolder
from moldau.pipelines.sources import first_offsets, group_of, stream_of
from moldau.protocol.errors import MoldauError

_LOOK_S = 0.25
_STOP_PATIENCE_S = 600.0
_TOO_SLOW = "Python worker failed to connect back"
_STARTS_AGAIN_MAX = 5
_INITIAL = "initial.json"
_MEMORIES = "memories.json"


class Running:
    """One run, while its folder is held. Signal handlers and other threads may call `stop`.
    `shares_disk`: tasks see the folders of this machine.
    """

    def __init__(
        self, session: Any, pipeline: Pipeline, folder: RunFolder, *, shares_disk: bool = True
    ) -> None:
        # A session of its own: names of datasets are views there.
        self._session = session.newSession()
        # What every other reader of parquet understands.
        self._session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        self._pipeline = pipeline
        self._folder = folder
        self._shares_disk = shares_disk
        self._notes = CheckpointNotes(self._session, folder.checkpoint)
        self._stops = threading.Event()
        self._works: list[tuple[Query, BatchWork, Any]] = []
        self._writers: dict[str, Any] = {}
        self._starts_left = _STARTS_AGAIN_MAX
        self._shown: list[QueryProgress] = []

    def stop(self) -> None:
        self._stops.set()

    def run(
        self, *, once: bool = False, show: Callable[[list[QueryProgress]], None] | None = None
    ) -> list[QueryProgress]:
        """Until it is stopped or, with `once`, all is done that is there. Raises MoldauError."""
        try:
            self._start(once=once)
            self._watch(show)
        finally:
            self._end()
        return self._shown

    def _start(self, *, once: bool) -> None:
        starts = self._starts()

        def read(source: str, query: str) -> Any:
            return stream_of(
                self._session,
                self._pipeline,
                source,
                group=group_of(self._pipeline, query),
                start=starts.get(source),
            )

        for query in compile_queries(self._session, self._pipeline, read):
            checkpoint = self._folder.checkpoint_of(query.name)
            work = BatchWork(self._pipeline, query, checkpoint)
            frame = query_frame(self._session, self._pipeline, query, read)
            self._refuse_another_memory(query, frame)
            if not self._shares_disk:
                self._refuse_folders_of_one_machine(query, frame)
            writer = (
                frame.writeStream.queryName(f"{self._pipeline.name}.{query.name}")
                .option("checkpointLocation", checkpoint)
                .outputMode(query.output_mode)
                .foreachBatch(work)
            )
            if once or self._pipeline.trigger.available_now:
                writer = writer.trigger(availableNow=True)
            elif self._pipeline.trigger.every_ms:
                every = f"{self._pipeline.trigger.every_ms} milliseconds"
                writer = writer.trigger(processingTime=every)
            self._writers[query.name] = writer
            self._works.append((query, work, writer.start()))

    def _refuse_another_memory(self, query: Query, frame: Any) -> None:
        """State that was made by another plan would be read wrongly, or fail much later."""
        # Its words are those of one version of Spark.
        memory = {"spark": self._session.version, "keeps": memory_of(frame)}
        known = self._notes.read(_MEMORIES)
        before = known.get(query.name)
        if before is None or before["spark"] != memory["spark"]:
            self._notes.write(_MEMORIES, known | {query.name: memory})
        elif before != memory:
            spot = query.flows[0].spot if query.flows else self._pipeline.spot
            raise MoldauError(
                f"{spot}: '{query.name}' has changed what it remembers, and its checkpoint holds "
                "the old; moldau pipeline reset begins anew, another --checkpoint keeps both"
            )

    def _refuse_folders_of_one_machine(self, query: Query, frame: Any) -> None:
        """Each task would write to a disk of its own, and nobody would find it there again."""
        for flow in query.flows:
            if isinstance(flow.into, Table) and "://" not in flow.into.path:
                raise MoldauError(
                    f"{flow.spot}: tasks run on machines that do not see {flow.into.path}; "
                    "write to a folder that all share, or to a URL like hdfs://…"
                )
        if self._folder.is_here and memory_of(frame):
            raise MoldauError(
                f"'{query.name}' remembers, and tasks do not see its checkpoint "
                f"{self._folder.path}; use a folder that all machines share, or "
                "--checkpoint hdfs://…"
            )

    def _starts(self) -> dict[str, str]:
        """Decided once: Spark asks again after a crash in the first batch, and `latest` would be
        another offset then.
        """
        known: dict[str, str] = self._notes.read(_INITIAL)
        missing = [name for name in self._pipeline.sources if name not in known]
        for name in missing:
            group = group_of(self._pipeline, name)
            start = first_offsets(self._pipeline, self._pipeline.sources[name], group)
            if start is not None:
                known[name] = start
        if missing:
            self._notes.write(_INITIAL, known)
        return known

    def _watch(self, show: Callable[[list[QueryProgress]], None] | None) -> None:
        while not self._stops.is_set():
            active = [query.isActive for _, _, query in self._works]
            self._look(show)
            has_begun_again = [self._has_begun_again(place) for place in range(len(self._works))]
            if not any(active) and not any(has_begun_again):
                return
            self._stops.wait(_LOOK_S)

    def _has_begun_again(self, place: int) -> bool:
        """A query whose Python did not come up in time, for Spark waits ten seconds and no longer:
        it goes on from its checkpoint. Any other failure is raised.
        """
        one, work, query = self._works[place]
        if query.isActive or (failure := query.exception()) is None:
            return False
        if _TOO_SLOW not in str(failure) or self._starts_left == 0:
            raise MoldauError(f"{self._pipeline.name}.{one.name}: {cause_of(failure)}")
        self._starts_left -= 1
        self._works[place] = (one, work, self._writers[one.name].start())
        return True

    def _look(self, show: Callable[[list[QueryProgress]], None] | None) -> None:
        found = [progress_of(query, stream) for query, _, stream in self._works]
        if found == self._shown:
            return
        self._shown = found
        self._folder.write(
            "status.json",
            {
                "name": self._pipeline.name,
                "pid": os.getpid(),
                "delivery": self._pipeline.delivery,
                "queries": [one._asdict() for one in found],
            },
        )
        if show is not None:
            show(found)

    def _end(self) -> None:
        """A batch that is under way is finished first: stopping in the middle of one upsets
        Spark's own thread.
        """
        for _, work, _ in self._works:
            work.stop()
        for _, work, query in self._works:
            self._wait_between_batches(work, query)
            try:
                query.stop()
            except Exception as error:  # noqa: BLE001 - it ends in any case
                if StoppedError.__name__ not in str(error):
                    raise MoldauError(short_text(error)) from None
            work.close()
        if self._works:
            self._look(None)

    def _wait_between_batches(self, work: BatchWork, query: Any) -> None:
        pause = threading.Event()
        for _ in range(round(_STOP_PATIENCE_S / _LOOK_S)):
            if not query.isActive or not (work.is_busy or _is_unfinished(work, query)):
                return
            pause.wait(_LOOK_S)


def _is_unfinished(work: BatchWork, query: Any) -> bool:
    """Spark has still to write down that the batch is done."""
    if work.last_done is None:
        return False
    progress = query.lastProgress
    return progress is None or json.loads(progress.json)["batchId"] < work.last_done


def cause_of(failure: BaseException) -> str:
    """Of Spark's stack of causes, the line that says something."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("moldau.") and "Error: " in line]
    if own:
        return own[-1].partition(": ")[2]
    said = [line for line in lines if "USER_RAISED_EXCEPTION" in line]
    return short_text(ValueError(said[0])) if said else short_text(failure)
