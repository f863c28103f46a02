"""The query plans that a checkpoint was created with. Resuming a checkpoint with a different plan
would misread its state, or fail much later with an obscure error.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moldau.core.pipelines.graph import Files, Http, Pipeline, Postgres, Spot, Table, Topic
from moldau.pipelines.compile.plan_inspection import state_of
from moldau.pipelines.compile.queries import Query, target_name
from moldau.pipelines.run.checkpoint_metadata import CheckpointMetadata
from moldau.pipelines.run.run_folder import RunFolder
from moldau.protocol.errors import MoldauError

_FILE = "plans.json"
_REMEDY = "start again with moldau pipeline reset, or use another --checkpoint"


def refuse_other_plans(
    metadata: CheckpointMetadata,
    folder: RunFolder,
    pipeline: Pipeline,
    frames: Sequence[tuple[Query, Any]],
) -> dict[str, Any]:
    """Compares the queries with those that the checkpoint was created with. Returns the plans of
    all queries, for `keep_plans`. Raises MoldauError that names the flow.
    """
    known = metadata.read(_FILE)
    plans = dict(known)
    for query, frame in frames:
        now: dict[str, Any] = {
            "spark": frame.sparkSession.version,
            "keeps": state_of(frame),
            "sources": {name: _location(pipeline, name, folder) for name in query.sources},
            "targets": {flow.name: _target(flow, folder) for flow in query.written},
        }
        _compare_queries(query, known)
        if query.name in known:
            _compare(pipeline, query, known[query.name], now)
        plans[query.name] = now
    return plans


def keep_plans(metadata: CheckpointMetadata, plans: dict[str, Any]) -> None:
    if metadata.read(_FILE) != plans:
        metadata.write(_FILE, plans)


def _compare(pipeline: Pipeline, query: Query, before: dict[str, Any], now: dict[str, Any]) -> None:
    _compare_sources(pipeline, query, before["sources"], now["sources"])
    _compare_targets(query, before["targets"], now["targets"])
    # Descriptions of plans can only be compared within one version of Spark.
    if before["spark"] == now["spark"] and before["keeps"] != now["keeps"]:
        raise MoldauError(
            f"{_spot(pipeline, query)}: '{query.name}' has changed the state that it keeps, and "
            f"its checkpoint holds the old state; {_REMEDY}"
        )


def _compare_queries(query: Query, known: dict[str, Any]) -> None:
    """A stateful flow is a query of its own. A flow that has become stateful or stateless would
    resume from the position of another query.
    """
    for flow in query.written:
        is_alone = query.name == flow.name
        for other, before in known.items():
            if flow.name in before["targets"] and (other == flow.name) != is_alone:
                now = (
                    "now keeps state or reads several sources"
                    if is_alone
                    else "no longer keeps state and reads one source"
                )
                raise MoldauError(
                    f"{flow.spot}: '{flow.name}' {now}, and cannot resume from its checkpoint; "
                    f"{_REMEDY}, or give the flow another name"
                )


def _compare_sources(
    pipeline: Pipeline, query: Query, before: dict[str, str], now: dict[str, str]
) -> None:
    if before == now:
        return
    changes = [
        *(f"'{name}' is gone" for name in before if name not in now),
        *(f"'{name}' is new" for name in now if name not in before),
        *(
            f"'{name}' was {before[name]} and is {now[name]}"
            for name in now
            if name in before and before[name] != now[name]
        ),
    ]
    raise MoldauError(
        f"{_spot(pipeline, query)}: '{query.name}' reads other sources than those in its "
        f"checkpoint: {', '.join(changes)}; {_REMEDY}"
    )


def _compare_targets(query: Query, before: dict[str, str], now: dict[str, str]) -> None:
    for flow in query.written:
        old = before.get(flow.name)
        if old is not None and old != now[flow.name]:
            raise MoldauError(
                f"{flow.spot}: '{flow.name}' wrote to {old} and would continue in "
                f"{now[flow.name]}, which lacks the earlier rows; {_REMEDY}"
            )


def _spot(pipeline: Pipeline, query: Query) -> Spot:
    return query.flows[0].spot if query.flows else pipeline.spot


def _location(pipeline: Pipeline, name: str, folder: RunFolder) -> str:
    source = pipeline.sources[name]
    match source:
        case Topic():
            return f"topic '{source.name}'"
        case Files():
            return f"files in {_relative(source.path, folder)}"
        case Http():
            return f"the answers of {source.url}"
        case Postgres():
            # Positions are values of these columns.
            columns = ", ".join((source.by or "", *source.key))
            return f"table {source.name} of PostgreSQL by {columns}"


def _target(flow: Any, folder: RunFolder) -> str:
    if isinstance(flow.into, Table):
        return f"table {_relative(flow.into.path, folder)}"
    if isinstance(flow.into, Postgres):
        return f"table {flow.into.name} of PostgreSQL"
    return f"topic '{target_name(flow)}'"


def _relative(path: str, folder: RunFolder) -> str:
    """Relative to the pipeline's folder, so that the whole folder can be moved. Tables of a catalog
    have names instead of paths.
    """
    is_path = Path(path).is_absolute()
    return os.path.relpath(path, folder.path.parent.parent) if is_path else path
