"""Processes a micro-batch: writes all topics at once, then the tables, each target exactly once."""

import threading
from collections.abc import Mapping
from typing import Any, TypeAlias

from moldau.connectors.postgres.target import PostgresTarget
from moldau.connectors.tables.delta import DeltaTarget
from moldau.connectors.tables.iceberg import IcebergTarget
from moldau.connectors.tables.parquet import ParquetTable
from moldau.core.pipelines.graph import Delivery, Flow, Pipeline, Postgres, Table, TableKind
from moldau.core.pipelines.graph_checks import lookups_of
from moldau.core.pipelines.query_progress import StepCounts, added
from moldau.pipelines.compile.dead_letters import source_dead_letters
from moldau.pipelines.compile.frames import frames_of
from moldau.pipelines.compile.lookups import LookupFrames, Lookups
from moldau.pipelines.compile.outputs import Outputs, Watch, outputs_of
from moldau.pipelines.compile.queries import Query
from moldau.pipelines.compile.source_options import group_of, kafka_options
from moldau.pipelines.compile.step_counts import StepCounter
from moldau.pipelines.compile.values import good_rows
from moldau.pipelines.run.failing_record import failing_record
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.spark_errors import cause_of
from moldau.spark.runtime.task_errors import is_caused_by_a_row
from moldau.spark.sink.exactly_once import ExactlyOnceSink

TableTarget: TypeAlias = ParquetTable | DeltaTarget | IcebergTarget | PostgresTarget


class StoppedError(MoldauError):
    """The run is stopping; the batch is left to the next run."""


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
    """A flow fails because of a record, which the message names."""


class BatchWork:
    """Processes the batches of one query, as the function of its `foreachBatch`."""

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
        """Makes every further batch raise StoppedError."""
        self._stops.set()

    def counts_up_to(self, batch_id: int) -> StepCounts:
        """Counts of the steps in batches up to this one, except those returned before."""
        numbers = [number for number in self._counts if number <= batch_id]
        counts = [self._counts.pop(number) for number in numbers]
        dead_letters = sum(count.dead_letters for count in counts)
        return StepCounts(dead_letters, added(*(count.expectations for count in counts)))

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
            # The sink has already retried, if that could help.
            if (
                self._query.is_pass
                and is_caused_by_a_row(error)
                and (record := self._failing(rows))
            ):
                raise FailingRecordError(f"{cause_of(error)}; {record}") from error
            raise
        finally:
            self.is_busy = False

    def _write(self, rows: Any, batch_id: int) -> None:
        is_read_often = self._query.is_pass and len(self._query.targets) > 1
        is_read_often = is_read_often or self._query.sends_step_dead_letters
        is_read_often = is_read_often or self._query.has_unwritten_flows
        if is_read_often:
            # Otherwise every target would read the source and update the state again.
            rows.persist()
        try:
            counter = StepCounter()
            outputs = self._outputs(rows, counter.counted)
            outputs.step_dead_letters = [
                counter.counted_dead_letters(frame) for frame in outputs.step_dead_letters
            ]
            topics = outputs.all_topics
            if topics is not None:
                self._write_topics(topics, batch_id)
            for flow, frame in outputs.tables:
                self._tables[flow.name].write(frame, batch_id)
            for frame in outputs.only_counted:
                frame.write.format("noop").mode("overwrite").save()
            self._counts[batch_id] = counter.counts()
        finally:
            if is_read_often:
                rows.unpersist()

    def _failing(self, rows: Any) -> str | None:
        """The record that makes a flow fail, if it can be found."""

        def fails(part: Any) -> bool:
            outputs = self._outputs(part)
            tables = [frame for _, frame in outputs.tables]
            frames = [*outputs.topics, *outputs.step_dead_letters, *tables]
            try:
                for frame in frames:
                    frame.write.format("noop").mode("overwrite").save()
            except Exception as error:  # noqa: BLE001 - Spark raises all sorts
                return is_caused_by_a_row(error)
            return False

        return failing_record(rows, self._pipeline.sources[self._query.sources[0]], fails)

    def _outputs(self, rows: Any, watch: Watch | None = None) -> Outputs:
        if self._query.is_pass:
            lookups = self._lookups.frames(rows.sparkSession)
            return self._pass_outputs(rows, lookups, watch)
        return outputs_of(self._pipeline, self._query.flows[0], rows, watch)

    def _pass_outputs(self, rows: Any, lookups: Mapping[str, Any], watch: Watch | None) -> Outputs:
        """The frames of all flows of a pass, made of a batch and the lookups."""
        name = self._query.sources[0]
        frames = frames_of(rows.sparkSession, self._pipeline, {name: good_rows(rows), **lookups})
        outputs = Outputs()
        for flow in self._query.flows:
            outputs.add(outputs_of(self._pipeline, flow, frames[flow.name], watch))
        if self._query.sends_dead_letters:
            outputs.topics.append(source_dead_letters(rows, self._pipeline, name))
        return outputs

    def _write_topics(self, rows: Any, batch_id: int) -> None:
        if self._sink is not None:
            self._sink(rows, batch_id)
        else:
            rows.write.format("moldau").options(**self._options).mode("append").save()
