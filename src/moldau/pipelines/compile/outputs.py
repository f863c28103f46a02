"""The frames that flows write. They are made once while a pipeline is compiled, so that Spark
reports mistakes before the run, and again for each micro-batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moldau.core.connectors.postgres_sql import DELETED
from moldau.core.pipelines.graph import (
    Flow,
    Mode,
    OnError,
    Pipeline,
    PipelineError,
    Postgres,
    Table,
    Topic,
)
from moldau.core.pipelines.graph_checks import dead_letter_of
from moldau.pipelines.compile.dead_letters import step_dead_letters
from moldau.pipelines.compile.expectations import STEP_ERROR, require_columns, without_bad_rows
from moldau.pipelines.compile.frames import flow_error
from moldau.pipelines.compile.values import written_rows
from moldau.pipelines.declare.arguments import pipeline_error

Watch = Callable[[Flow, Any], Any]
"""(flow, its rows) -> the same rows, which are counted while they are written."""


@dataclass
class Outputs:
    """The frames of one or several flows, by the kind of their target."""

    topics: list[Any] = field(default_factory=list)
    """Frames of OUT_COLUMNS."""
    step_dead_letters: list[Any] = field(default_factory=list)
    """Frames of OUT_COLUMNS: rows that steps mark as bad."""
    tables: list[tuple[Flow, Any]] = field(default_factory=list)
    only_counted: list[Any] = field(default_factory=list)
    """Rows that are counted, but not written."""

    def add(self, other: "Outputs") -> None:
        self.topics += other.topics
        self.step_dead_letters += other.step_dead_letters
        self.tables += other.tables
        self.only_counted += other.only_counted

    @property
    def all_topics(self) -> Any | None:
        """All rows for topics in one frame, for one write."""
        frames = [*self.topics, *self.step_dead_letters]
        if not frames:
            return None
        united = frames[0]
        for frame in frames[1:]:
            united = united.unionByName(frame)
        return united


def outputs_of(pipeline: Pipeline, flow: Flow, rows: Any, watch: "Watch | None" = None) -> Outputs:
    """The frames of one flow. `watch` counts the rows of a flow with expectations. Raises
    PipelineError.
    """
    watched = rows if watch is None or not flow.expect else watch(flow, rows)
    outputs = Outputs()
    try:
        match flow.into:
            case Table() | Postgres():
                outputs.tables.append((flow, _table_rows(flow, watched)))
            case Topic():
                outputs.topics.append(written_rows(watched, flow))
            case None:
                outputs.only_counted.append(watched)
        if flow.on_error is OnError.DEAD_LETTER:
            topic = dead_letter_of(pipeline, flow)
            outputs.step_dead_letters.append(step_dead_letters(rows, flow, topic, pipeline))
    except PipelineError:
        raise
    except Exception as error:  # noqa: BLE001 - Spark raises all sorts
        raise flow_error(error, flow) from None
    return outputs


def _table_rows(flow: Flow, rows: Any) -> Any:
    if isinstance(flow.into, Postgres):
        require_columns(rows, flow.into.key, flow, "key")
        if DELETED in rows.columns and flow.mode is not Mode.UPSERT:
            raise pipeline_error(
                flow.spot,
                f"'{flow.name}' has a column {DELETED}, which needs mode upsert",
            )
    elif isinstance(flow.into, Table):
        require_columns(rows, flow.into.partition_by, flow, "partition_by")
    return rows if flow.on_error is None else without_bad_rows(rows, flow).drop(STEP_ERROR)
