"""Exactly-once delivery to topics: each micro-batch is one transaction, which also commits the
query's progress to a group. The committed progress shows whether a batch that Spark repeats was
written before.
"""

import hashlib
import json
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, NamedTuple

from moldau.core.spark.errors import StaleCheckpointError

_MARK = "moldauBatch"


class BatchMarker(NamedTuple):
    """Identifies the batch of a committed offset."""

    query_id: str
    batch_id: int
    digest: str
    """The digest of the offsets at which the batch ended."""


class BatchVerdict(Enum):
    WRITE = auto()
    SKIP = auto()
    """The batch is already committed."""


def digest_of(offset_lines: Iterable[str]) -> str:
    """The digest of a batch's source offsets, which Spark stored before it ran the batch."""
    text = "\n".join(line.strip() for line in offset_lines)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_marker(marker: BatchMarker) -> str:
    """The marker as metadata of a committed offset."""
    parts = {_MARK: marker.batch_id, "queryId": marker.query_id, "digest": marker.digest}
    return json.dumps(parts, separators=(",", ":"))


def read_marker(metadata: str) -> BatchMarker | None:
    """None if it was not committed by a sink."""
    if not is_marker(metadata):
        return None
    try:
        fields: dict[str, Any] = json.loads(metadata)
        return BatchMarker(str(fields["queryId"]), int(fields[_MARK]), str(fields["digest"]))
    except (ValueError, KeyError, TypeError):
        return None


def is_marker(metadata: str) -> bool:
    return metadata.startswith(f'{{"{_MARK}":')


def verdict_on(committed: Iterable[str], batch: BatchMarker, name: str) -> BatchVerdict:
    """Whether to write the batch. `committed`: the metadata of all partitions of the group. Raises
    StaleCheckpointError.
    """
    markers = [marker for text in committed if (marker := read_marker(text)) is not None]
    own = [marker for marker in markers if marker.query_id == batch.query_id]
    if not own:
        # A new query with a new checkpoint, which has its start.
        return BatchVerdict.WRITE
    last = max(own, key=lambda marker: marker.batch_id)
    if last.batch_id < batch.batch_id:
        return BatchVerdict.WRITE
    if last == batch:
        return BatchVerdict.SKIP
    if last.batch_id == batch.batch_id:
        reason = f"batch {batch.batch_id} was committed with other offsets"
    else:
        reason = (
            f"batch {last.batch_id} is committed, and the checkpoint begins at {batch.batch_id}"
        )
    raise StaleCheckpointError(
        f"'{name}': {reason}; the checkpoint is an older copy. Use the newest one, or a new "
        "checkpoint with startingOffsets=group"
    )
