"""What becomes of a micro-batch: topics in one write, then tables, each target exactly once."""

import threading
from typing import Any, TypeAlias

from moldau.connectors.postgres.target import PostgresTarget
from moldau.connectors.tables.delta import DeltaTarget
from moldau.connectors.tables.iceberg import IcebergTarget
from moldau.connectors.tables.parquet import ParquetTable
from moldau.core.pipelines.graph import Delivery, Flow, Pipeline, Postgres, Table, TableKind
from moldau.core.pipelines.graph_checks import lookups_of
from moldau.core.pipelines.query_progress import StepCounts, added
from moldau.pipelines.compile.lookups import LookupFrames, Lookups
from moldau.pipelines.compile.queries import Outputs, Query, Watch, outputs_of, pass_outputs
from moldau.pipelines.compile.sources import group_of, kafka_options
from moldau.pipelines.compile.step_counts import Watcher
from moldau.pipelines.run.failing_record import failing_record
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.spark_errors import cause_of
from moldau.spark.runtime.task_errors import is_of_rows
from moldau.spark.sink.exactly_once import ExactlyOnceSink

TableTarget: TypeAlias = ParquetTable | DeltaTarget | IcebergTarget | PostgresTarget


class StoppedError(MoldauError):
    """The run is ending: this batch is left to the next one."""


def table_target(flow: Flow, name: str, checkpoint: str) -> TableTarget:
    """Raises MoldauError."""
    table = flow.into
    if isinstance(table, Postgres):
        return PostgresTarget(table, flow.mode, name, checkpoint)
    assert isinstance(table, Table)
    if table.kind is TableKind.DELTA:
        return DeltaTarget(table, name)
    if table.kind is TableKind.ICEBERG:
        return IcebergTarget(table, name, checkpoint)
    return ParquetTable(table, name, checkpoint)


class FailingRecordError(MoldauError):
    """A flow fails at a record."""


class BatchWork:
    """For `foreachBatch`."""

    def __init__(self, pipeline: Pipeline, query: Query, lookups: Lookups, checkpoint: str) -> None:
        self._pipeline = pipeline
        self._query = query
        self._checkpoint = checkpoint
        self._stops = threading.Event()
        self.is_busy = False
        self.last_done: int | None = None
        self._counts: dict[int, StepCounts] = {}
        used = {name for flow in query.flows for name in lookups_of(pipeline, flow)}
        self._lookups = LookupFrames(lookups, used)
        name = f"{pipeline.name}.{query.name}"
        options = kafka_options(pipeline)
        self._sink: ExactlyOnceSink | None = None
        if pipeline.delivery is Delivery.EXACTLY_ONCE:
            group = group_of(pipeline, query.name)
            self._sink = ExactlyOnceSink(name, checkpoint, options, group=group)
        self._options = options
        self._tables = {
            flow.name: table_target(flow, f"{name}.{flow.name}", checkpoint)
            for flow in query.flows
            if isinstance(flow.into, Table | Postgres)
        }

    def stop(self) -> None:
        """No batch is begun from now on."""
        self._stops.set()

    def counts_up_to(self, batch_id: int) -> StepCounts:
        """Of what steps said, in batches that were not asked for yet."""
        found = [self._counts.pop(one) for one in list(self._counts) if one <= batch_id]
        letters = sum(one.letters for one in found)
        return StepCounts(letters, added(*(one.expectations for one in found)))

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def __call__(self, rows: Any, batch_id: int) -> None:
        if self._stops.is_set():
            raise StoppedError("the pipeline is stopping")
        self.is_busy = True
        try:
            self._write(rows, batch_id)
            self.last_done = batch_id
        except Exception as error:
            # Nobody tries it again: the sink has, if that could help.
            if self._query.is_pass and is_of_rows(error) and (found := self._record(rows)):
                raise FailingRecordError(f"{cause_of(error)}; {found}") from error
            raise
        finally:
            self.is_busy = False

    def _write(self, rows: Any, batch_id: int) -> None:
        is_read_often = self._query.is_pass and len(self._query.targets) > 1
        is_read_often = is_read_often or self._query.sends_step_letters or self._query.only_judges
        if is_read_often:
            # Or every target would read the source again, and go through what flows remember.
            rows.persist()
        try:
            watcher = Watcher()
            outputs = self._outputs(rows, watcher.watched)
            outputs.letters = [watcher.counted_letters(frame) for frame in outputs.letters]
            topics = outputs.all_topics
            if topics is not None:
                self._write_topics(topics, batch_id)
            for flow, frame in outputs.tables:
                self._tables[flow.name].write(frame, batch_id)
            for frame in outputs.judged:
                frame.write.format("noop").mode("overwrite").save()
            self._counts[batch_id] = watcher.counts()
        finally:
            if is_read_often:
                rows.unpersist()

    def _record(self, rows: Any) -> str | None:
        """That a flow fails at."""

        def fails(some: Any) -> bool:
            outputs = self._outputs(some)
            frames = [*outputs.topics, *outputs.letters, *(frame for _, frame in outputs.tables)]
            try:
                for frame in frames:
                    frame.write.format("noop").mode("overwrite").save()
            except Exception as error:  # noqa: BLE001 - Spark raises all sorts
                return is_of_rows(error)
            return False

        return failing_record(rows, self._pipeline.sources[self._query.sources[0]], fails)

    def _outputs(self, rows: Any, watch: Watch | None = None) -> Outputs:
        if self._query.is_pass:
            lookups = self._lookups.frames(rows.sparkSession)
            return pass_outputs(self._pipeline, self._query, rows, lookups, watch)
        return outputs_of(self._pipeline, self._query.flows[0], rows, watch)

    def _write_topics(self, rows: Any, batch_id: int) -> None:
        if self._sink is not None:
            self._sink(rows, batch_id)
        else:
            rows.write.format("moldau").options(**self._options).mode("append").save()
