"""Runs a pipeline: starts its queries, watches them, and stops them between two batches."""

import os
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from moldau.core.pipelines.graph import Delivery, Pipeline, Table
from moldau.core.pipelines.query_progress import QueryProgress
from moldau.pipelines.compile.first_offsets import (
    first_offsets,
    starts_at_group,
    with_new_partitions,
)
from moldau.pipelines.compile.lookups import Lookups
from moldau.pipelines.compile.plan_inspection import is_stateful
from moldau.pipelines.compile.queries import Query, compile_queries, query_frame
from moldau.pipelines.compile.source_options import group_of
from moldau.pipelines.compile.sources import StreamTerms, stream_of
from moldau.pipelines.run.checkpoint_metadata import CheckpointMetadata
from moldau.pipelines.run.plan_compatibility import keep_plans, refuse_other_plans
from moldau.pipelines.run.query import QueryRun
from moldau.pipelines.run.run_folder import RunFolder
from moldau.pipelines.run.session import fit_shuffles
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.spark_errors import cause_of, in_one_line

_CHECK_EVERY_S = 0.25
_INITIAL = "initial.json"
Show = Callable[[list[QueryProgress]], None]


class Running:
    """One run of a pipeline, while its folder is locked. Signal handlers and other threads may call
    `stop`. `shares_disk`: tasks see the folders of this machine.
    """

    def __init__(
        self, session: Any, pipeline: Pipeline, folder: RunFolder, *, shares_disk: bool = True
    ) -> None:
        # A session of its own, because datasets become views with their names.
        self._session = session.newSession()
        # The type of timestamps that all readers of Parquet understand.
        self._session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        fit_shuffles(self._session)
        self._pipeline = pipeline
        self._folder = folder
        self._shares_disk = shares_disk
        self._metadata = CheckpointMetadata(self._session, folder.checkpoint)
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
        report_phase: Callable[[str], None] | None = None,
    ) -> list[QueryProgress]:
        """Runs until it is stopped or, with `once`, until the available data is processed.
        `report_phase` is called with each phase before the queries exist; by default the folder
        records it. Raises MoldauError.
        """
        # Also replaces the status that the last run has recorded.
        report_phase = report_phase or partial(self._folder.write_phase, self._pipeline.name)
        report_phase("analysing plans")
        try:
            with in_one_line(self._pipeline.name):
                self._start(once=once)
            self._watch(show)
        except MoldauError as error:
            self._error = str(error)
            self._write_status()
            raise
        finally:
            self._stop_queries(show)
        return self._shown

    def _start(self, *, once: bool) -> None:
        starts: dict[str, str] = {}
        # Queries whose sink commits their position to the group, with each transaction.
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
        # Check all queries before one starts.
        if not self._shares_disk:
            for query, frame in frames:
                self._refuse_folders_of_one_machine(query, frame)
        plans = refuse_other_plans(self._metadata, self._folder, self._pipeline, frames)
        keep_plans(self._metadata, plans)
        for query, frame in frames:
            checkpoint = self._folder.checkpoint_of(query.name)
            run = QueryRun(self._pipeline, query, frame, lookups, checkpoint)
            run.start(once=once)
            self._runs.append(run)

    def _refuse_folders_of_one_machine(self, query: Query, frame: Any) -> None:
        """Raises MoldauError for folders that tasks do not see: each would use its own disk."""
        for flow in query.flows:
            if isinstance(flow.into, Table) and "://" not in flow.into.path:
                raise MoldauError(
                    f"{flow.spot}: tasks run on machines that do not see {flow.into.path}; "
                    "write to a folder that all machines share, or to a URL like hdfs://…"
                )
        if self._folder.is_here and is_stateful(frame):
            raise MoldauError(
                f"'{query.name}' keeps state, and tasks do not see its checkpoint "
                f"{self._folder.path}; use a folder that all machines share, or "
                "--checkpoint hdfs://…"
            )

    def _starts(self, queries: list[Query]) -> dict[str, str]:
        """The start offsets of each query, resolved only once: after a crash in the first batch
        Spark requests them again, and `latest` would be another offset by then.
        """
        pipeline = self._pipeline
        known: dict[str, str] = self._metadata.read(_INITIAL)
        # Queries that start together start at the same offsets.
        first = cache(partial(first_offsets, pipeline))
        starts = dict(known)
        for query in queries:
            for source in query.sources:
                name = _start_name(query.name, source)
                # A flow that was added later starts now, not where others started long ago.
                start: str | None
                if name in known:
                    start = with_new_partitions(pipeline, source, known[name])
                else:
                    owner = query.name if starts_at_group(pipeline.sources[source]) else source
                    start = first(source, group_of(pipeline, owner))
                if start is not None:
                    starts[name] = start
        if starts != known:
            self._metadata.write(_INITIAL, starts)
        return starts

    def _watch(self, show: Show | None) -> None:
        while not self._stops.is_set():
            active = [run.is_active for run in self._runs]
            self._update(show)
            for run in self._runs:
                if (failure := run.failure) is not None and not run.restart():
                    name = f"{self._pipeline.name}.{run.query.name}"
                    raise MoldauError(f"{name}: {cause_of(failure)}")
            if not any(active) and not any(run.is_active for run in self._runs):
                return
            self._stops.wait(_CHECK_EVERY_S)

    def _update(self, show: Show | None) -> None:
        queries = [run.progress.update() for run in self._runs]
        has_changed = queries != self._shown or self._error is not None
        if has_changed:
            self._shown = queries
            self._write_status()
        # The shown time of a starting query changes even if nothing else does.
        is_starting = any(query.state == "starting" for query in queries)
        if show is not None and (has_changed or is_starting):
            show(queries)

    def _write_status(self) -> None:
        self._folder.write(
            "status.json",
            {
                "name": self._pipeline.name,
                "pid": os.getpid(),
                "delivery": self._pipeline.delivery,
                "error": self._error,
                "queries": [query._asdict() for query in self._shown],
            },
        )

    def _stop_queries(self, show: Show | None) -> None:
        """Current batches are finished first: an interrupt in the middle of one makes Spark's own
        thread fail.
        """
        for run in self._runs:
            run.request_stop()
        problems = [problem for run in self._runs if (problem := run.stop()) is not None]
        if self._runs:
            self._update(show)
        if problems and self._error is None:
            raise MoldauError(problems[0])


def _start_name(query: str, source: str) -> str:
    return f"{query}/{source}"
