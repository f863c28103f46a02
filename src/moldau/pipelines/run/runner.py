"""A pipeline at work: its queries are started, watched, and stopped between two batches."""

import os
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from moldau.core.pipelines.graph import Delivery, Pipeline, Table
from moldau.core.pipelines.query_progress import QueryProgress
from moldau.pipelines.compile.lookups import Lookups
from moldau.pipelines.compile.queries import Query, compile_queries, memory_of, query_frame
from moldau.pipelines.compile.sources import (
    StreamTerms,
    begins_at_group,
    first_offsets,
    group_of,
    stream_of,
    with_new_partitions,
)
from moldau.pipelines.run.checkpoint_metadata import CheckpointNotes
from moldau.pipelines.run.cluster import fit_shuffles
from moldau.pipelines.run.plan_compatibility import keep_plans, refuse_other_plans
from moldau.pipelines.run.query import QueryRun
from moldau.pipelines.run.run_folder import RunFolder
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.spark_errors import cause_of, in_one_line

_LOOK_S = 0.25
_INITIAL = "initial.json"
Show = Callable[[list[QueryProgress]], None]


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
        fit_shuffles(self._session)
        self._pipeline = pipeline
        self._folder = folder
        self._shares_disk = shares_disk
        self._notes = CheckpointNotes(self._session, folder.checkpoint)
        self._stops = threading.Event()
        self._runs: list[QueryRun] = []
        self._error: str | None = None
        self._shown: list[QueryProgress] = []

    def stop(self) -> None:
        self._stops.set()

    def run(
        self,
        *,
        once: bool = False,
        show: Show | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> list[QueryProgress]:
        """Until it is stopped or, with `once`, all is done that is there. `tell`: takes what is
        done before there are queries, in place of the folder. Raises MoldauError.
        """
        # Or the last run's words would be taken for this one's.
        tell = tell or partial(self._folder.tell_phase, self._pipeline.name)
        tell("analysing plans")
        try:
            with in_one_line(self._pipeline.name):
                self._start(once=once)
            self._watch(show)
        except MoldauError as error:
            self._error = str(error)
            self._write_status()
            raise
        finally:
            self._end(show)
        return self._shown

    def _start(self, *, once: bool) -> None:
        starts: dict[str, str] = {}
        # Their sink writes down in the group where they are, with each transaction.
        transactional: set[str] = set()

        def read(source: str, query: str) -> Any:
            terms = StreamTerms(
                group=group_of(self._pipeline, query),
                start=starts.get(_start_name(query, source)),
                keep=self._folder.kept_answers(query, source),
                publishes=query not in transactional,
            )
            return stream_of(self._session, self._pipeline, source, terms)

        queries = compile_queries(self._session, self._pipeline, read)
        starts |= self._starts(queries)
        if self._pipeline.delivery is Delivery.EXACTLY_ONCE:
            transactional |= {query.name for query in queries if query.writes_topics}
        lookups = Lookups(self._session, self._pipeline)
        tables = lookups.frames()
        frames = [
            (query, query_frame(self._session, self._pipeline, query, read, tables))
            for query in queries
        ]
        # All of them before one begins.
        if not self._shares_disk:
            for query, frame in frames:
                self._refuse_folders_of_one_machine(query, frame)
        plans = refuse_other_plans(self._notes, self._folder, self._pipeline, frames)
        keep_plans(self._notes, plans)
        for query, frame in frames:
            checkpoint = self._folder.checkpoint_of(query.name)
            run = QueryRun(self._pipeline, query, frame, lookups, checkpoint)
            run.begin(once=once)
            self._runs.append(run)

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

    def _starts(self, queries: list[Query]) -> dict[str, str]:
        """Decided once for each query: Spark asks again after a crash in the first batch, and
        `latest` would be another offset then.
        """
        pipeline = self._pipeline
        known: dict[str, str] = self._notes.read(_INITIAL)
        # Queries that begin together begin at the same place.
        first = cache(partial(first_offsets, pipeline))
        found = dict(known)
        for query in queries:
            for source in query.sources:
                name = _start_name(query.name, source)
                # A flow that came later begins now, not where others began long ago.
                start: str | None
                if name in known:
                    start = with_new_partitions(pipeline, source, known[name])
                else:
                    begins = query.name if begins_at_group(pipeline.sources[source]) else source
                    start = first(source, group_of(pipeline, begins))
                if start is not None:
                    found[name] = start
        if found != known:
            self._notes.write(_INITIAL, found)
        return found

    def _watch(self, show: Show | None) -> None:
        while not self._stops.is_set():
            active = [run.is_active for run in self._runs]
            self._look(show)
            for run in self._runs:
                if (failure := run.failure) is not None and not run.begins_again():
                    name = f"{self._pipeline.name}.{run.query.name}"
                    raise MoldauError(f"{name}: {cause_of(failure)}")
            if not any(active) and not any(run.is_active for run in self._runs):
                return
            self._stops.wait(_LOOK_S)

    def _look(self, show: Show | None) -> None:
        found = [run.progress.look() for run in self._runs]
        is_news = found != self._shown or self._error is not None
        if is_news:
            self._shown = found
            self._write_status()
        # How long a query has been starting changes, if nothing else does.
        if show is not None and (is_news or any(one.state == "starting" for one in found)):
            show(found)

    def _write_status(self) -> None:
        self._folder.write(
            "status.json",
            {
                "name": self._pipeline.name,
                "pid": os.getpid(),
                "delivery": self._pipeline.delivery,
                "error": self._error,
                "queries": [one._asdict() for one in self._shown],
            },
        )

    def _end(self, show: Show | None) -> None:
        """A batch that is under way is finished first: stopping in the middle of one upsets
        Spark's own thread.
        """
        for run in self._runs:
            run.ask_to_end()
        problems = [problem for run in self._runs if (problem := run.end()) is not None]
        if self._runs:
            self._look(show)
        if problems and self._error is None:
            raise MoldauError(problems[0])


def _start_name(query: str, source: str) -> str:
    return f"{query}/{source}"
