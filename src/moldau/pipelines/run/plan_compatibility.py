"""What queries were when their checkpoints were begun. A checkpoint that is gone on with by another
plan would be read wrongly, or fail much later with words that nobody understands.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moldau.core.pipelines.graph import Files, Http, Pipeline, Postgres, Spot, Table, Topic
from moldau.pipelines.compile.queries import Query, memory_of, target_name
from moldau.pipelines.run.checkpoint_metadata import CheckpointNotes
from moldau.pipelines.run.run_folder import RunFolder
from moldau.protocol.errors import MoldauError

_FILE = "plans.json"
_WAYS = "moldau pipeline reset begins anew, another --checkpoint keeps both"


def refuse_other_plans(
    notes: CheckpointNotes,
    folder: RunFolder,
    pipeline: Pipeline,
    frames: Sequence[tuple[Query, Any]],
) -> dict[str, Any]:
    """Raises MoldauError that names the flow. Gives what all queries are now, to be kept."""
    known = notes.read(_FILE)
    plans = dict(known)
    for query, frame in frames:
        now: dict[str, Any] = {
            "spark": frame.sparkSession.version,
            "keeps": memory_of(frame),
            "sources": {name: _place(pipeline, name, folder) for name in query.sources},
            "targets": {flow.name: _target(flow, folder) for flow in query.written},
        }
        _compare_queries(query, known)
        if query.name in known:
            _compare(pipeline, query, known[query.name], now)
        plans[query.name] = now
    return plans


def keep_plans(notes: CheckpointNotes, plans: dict[str, Any]) -> None:
    if notes.read(_FILE) != plans:
        notes.write(_FILE, plans)


def _compare(pipeline: Pipeline, query: Query, before: dict[str, Any], now: dict[str, Any]) -> None:
    _compare_sources(pipeline, query, before["sources"], now["sources"])
    _compare_targets(query, before["targets"], now["targets"])
    # Its words are those of one version of Spark.
    if before["spark"] == now["spark"] and before["keeps"] != now["keeps"]:
        raise MoldauError(
            f"{_spot(pipeline, query)}: '{query.name}' has changed what it remembers, and its "
            f"checkpoint holds the old; {_WAYS}"
        )


def _compare_queries(query: Query, known: dict[str, Any]) -> None:
    """A flow that remembers is a query of its own: with or without memory from now on, it would
    begin where another query is.
    """
    for flow in query.written:
        is_alone = query.name == flow.name
        for other, before in known.items():
            if flow.name in before["targets"] and (other == flow.name) != is_alone:
                now = (
                    "has begun to remember, or to read several sources,"
                    if is_alone
                    else "does not remember any more, and reads one source,"
                )
                raise MoldauError(
                    f"{flow.spot}: '{flow.name}' {now} and would not go on where it was; {_WAYS}, "
                    "another name makes it another flow"
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
        f"{_spot(pipeline, query)}: '{query.name}' reads other sources than its checkpoint knows: "
        f"{', '.join(changes)}; {_WAYS}"
    )


def _compare_targets(query: Query, before: dict[str, str], now: dict[str, str]) -> None:
    for flow in query.written:
        old = before.get(flow.name)
        if old is not None and old != now[flow.name]:
            raise MoldauError(
                f"{flow.spot}: '{flow.name}' wrote {old} and would go on in {now[flow.name]}, "
                f"which has nothing of before; {_WAYS}"
            )


def _spot(pipeline: Pipeline, query: Query) -> Spot:
    return query.flows[0].spot if query.flows else pipeline.spot


def _place(pipeline: Pipeline, name: str, folder: RunFolder) -> str:
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
    """A pipeline may be moved with all that it has; tables of a catalog have names, not places."""
    is_place = Path(path).is_absolute()
    return os.path.relpath(path, folder.path.parent.parent) if is_place else path
