"""Exactly-once into topics: each micro-batch is one transaction, and with its rows the progress of
the query is committed to a group. What is committed there says whether a batch that Spark runs
again was written before.
"""

import hashlib
import json
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, NamedTuple

from moldau.core.spark.errors import StaleCheckpointError

_MARK = "moldauBatch"


class Marker(NamedTuple):
    """Which batch a committed offset belongs to."""

    query_id: str
    batch_id: int
    digest: str
    """Of the offsets at which the batch ended."""


class Verdict(Enum):
    WRITE = auto()
    SKIP = auto()
    """It is written and committed already."""


def digest_of(offset_lines: Iterable[str]) -> str:
    """Of what Spark has written down about a batch's sources, before it ran."""
    text = "\n".join(line.strip() for line in offset_lines)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_marker(marker: Marker) -> str:
    """As a committed offset's metadata."""
    parts = {_MARK: marker.batch_id, "queryId": marker.query_id, "digest": marker.digest}
    return json.dumps(parts, separators=(",", ":"))


def read_marker(metadata: str) -> Marker | None:
    """None: somebody else committed it."""
    if not is_marker(metadata):
        return None
    try:
        found: dict[str, Any] = json.loads(metadata)
        return Marker(str(found["queryId"]), int(found[_MARK]), str(found["digest"]))
    except (ValueError, KeyError, TypeError):
        return None


def is_marker(metadata: str) -> bool:
    return metadata.startswith(f'{{"{_MARK}":')


def judge(committed: Iterable[str], wanted: Marker, name: str) -> Verdict:
    """`committed`: metadata of all partitions of the group. Raises StaleCheckpointError."""
    found = [marker for text in committed if (marker := read_marker(text)) is not None]
    own = [marker for marker in found if marker.query_id == wanted.query_id]
    if not own:
        # A new query; its checkpoint is new too, and says where it begins.
        return Verdict.WRITE
    last = max(own, key=lambda marker: marker.batch_id)
    if last.batch_id < wanted.batch_id:
        return Verdict.WRITE
    if last == wanted:
        return Verdict.SKIP
    if last.batch_id == wanted.batch_id:
        what = f"batch {wanted.batch_id} was committed with other offsets"
    else:
        what = f"batch {last.batch_id} is committed, and the checkpoint begins at {wanted.batch_id}"
    raise StaleCheckpointError(
        f"'{name}': {what}; the checkpoint is an older copy. Use the newest one, or a new "
        "checkpoint with startingOffsets=group"
    )
