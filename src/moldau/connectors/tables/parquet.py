"""Writes Parquet, each row once: tasks write files to a staging folder, and the driver records
which files belong to the batch, which is the commit, and moves them. A batch that Spark runs again
is recognised by that record, and missing moves are completed.
"""

import json
from typing import Any

from moldau.connectors.tables.hadoop_files import (
    HadoopFileSystem,
    new_staging_folder,
    staging_root,
    write_to_staging,
)
from moldau.core.pipelines.graph import Table
from moldau.core.spark.exactly_once import (
    BatchMarker,
    BatchVerdict,
    digest_of,
    verdict_on,
    write_marker,
)
from moldau.core.spark.options import QUERY_ID_PROPERTY
from moldau.spark.sink.checkpoint_files import offset_lines

_FOLDER = "_moldau"


class ParquetTable:
    """`name` is unique to the query and flow: the commit is recorded under it."""

    def __init__(self, table: Table, name: str, checkpoint: str) -> None:
        self._path = table.path.rstrip("/")
        self._partition_by = table.partition_by
        self._name = name
        self._checkpoint = checkpoint

    def write(self, rows: Any, batch_id: int) -> None:
        session = rows.sparkSession
        disk = HadoopFileSystem(session)
        lines = offset_lines(session, self._checkpoint, batch_id)
        query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or ""
        marker = BatchMarker(query_id, batch_id, digest_of(lines))
        commit_file = f"{self._path}/{_FOLDER}/{self._name}.json"
        last = json.loads(disk.read(commit_file) or "{}")
        if verdict_on([last.get("marker", "")], marker, self._name) is BatchVerdict.SKIP:
            self._move(disk, last["files"])
            # The state of stateful steps is not committed yet: run them without writing.
            rows.write.format("noop").mode("overwrite").save()
            return
        if last:
            # Complete the moves of the last batch.
            self._move(disk, last["files"])
        disk.delete(staging_root(self._path, self._name))
        staging = new_staging_folder(self._path, self._name)
        written = write_to_staging(disk, rows, staging, self._partition_by)
        files = self._named(written, staging, query_id, batch_id)
        disk.replace(commit_file, json.dumps({"marker": write_marker(marker), "files": files}))
        self._move(disk, files)
        disk.delete(staging)

    def _named(
        self, written: list[str], staging: str, query_id: str, batch_id: int
    ) -> dict[str, str]:
        """The new path of each file, which no other batch uses."""
        files: dict[str, str] = {}
        for number, file in enumerate(written):
            folder = file[len(staging) :].rpartition("/")[0]
            name = f"{query_id[:8]}-{self._name}-{batch_id:09d}-{number:05d}.parquet"
            files[file] = f"{self._path}{folder}/{name}"
        return files

    def _move(self, disk: HadoopFileSystem, files: dict[str, str]) -> None:
        for source, target in files.items():
            disk.move(source, target)
