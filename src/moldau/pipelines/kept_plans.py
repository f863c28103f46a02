"""What queries were when their checkpoints were begun. A checkpoint that is gone on with by another
plan would be read wrongly, or fail much later with words that nobody understands.
"""

import os
from pathlib import Path
from typing import Any

from moldau.core.pipelines.graph import Files, Http, Pipeline, Spot, Table, Topic
from moldau.pipelines.checkpoint_notes import CheckpointNotes
from moldau.pipelines.compiling import Query, memory_of, target_name
from moldau.pipelines.run_folder import RunFolder
from moldau.protocol.errors import MoldauError

_FILE = "plans.json"
_WAYS = "moldau pipeline reset begins anew, another --checkpoint keeps both"


def refuse_another_plan(
    notes: CheckpointNotes, folder: RunFolder, pipeline: Pipeline, query: Query, frame: Any
) -> None:
    """Raises MoldauError that names the flow; else it is kept what the query is now."""
    now: dict[str, Any] = {
        "spark": frame.sparkSession.version,
        "keeps": memory_of(frame),
        "sources": {name: _place(pipeline, name, folder) for name in query.sources},
        "targets": {flow.name: _target(flow, folder) for flow in query.flows},
    }
    known = notes.read(_FILE)
    before = known.get(query.name)
    if before is not None:
        _compare_sources(pipeline, query, before["sources"], now["sources"])
        _compare_targets(query, before["targets"], now["targets"])
        # Its words are those of one version of Spark.
        if before["spark"] == now["spark"] and before["keeps"] != now["keeps"]:
            raise MoldauError(
                f"{_spot(pipeline, query)}: '{query.name}' has changed what it remembers, and its "
                f"checkpoint holds the old; {_WAYS}"
            )
    if before != now:
        notes.write(_FILE, known | {query.name: now})


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
    for flow in query.flows:
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


def _target(flow: Any, folder: RunFolder) -> str:
    if isinstance(flow.into, Table):
        return f"table {_relative(flow.into.path, folder)}"
    return f"topic '{target_name(flow)}'"


def _relative(path: str, folder: RunFolder) -> str:
    """A pipeline may be moved with all that it has; tables of a catalog have names, not places."""
    is_place = Path(path).is_absolute()
    return os.path.relpath(path, folder.path.parent.parent) if is_place else path
