"""Parquet, each row once: tasks write files aside, the driver writes down which files the batch
consists of (that is the commit) and moves them to their places. A batch that Spark runs again is
recognised by what is written down; moves that were not done are done then.
"""

import json
from typing import Any

from moldau.connectors.tables.hadoop_files import Disk, aside_folder, new_aside, write_aside
from moldau.core.pipelines.graph import Table
from moldau.core.spark.exactly_once import Marker, Verdict, digest_of, judge, write_marker
from moldau.core.spark.options import QUERY_ID_PROPERTY
from moldau.spark.sink.exactly_once import offset_lines

_FOLDER = "_moldau"


class ParquetTable:
    """`name` is the query's and flow's own: what is committed is kept under it."""

    def __init__(self, table: Table, name: str, checkpoint: str) -> None:
        self._path = table.path.rstrip("/")
        self._partition_by = table.partition_by
        self._name = name
        self._checkpoint = checkpoint

    def write(self, rows: Any, batch_id: int) -> None:
        session = rows.sparkSession
        disk = Disk(session)
        lines = offset_lines(session, self._checkpoint, batch_id)
        query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or ""
        marker = Marker(query_id, batch_id, digest_of(lines))
        note = f"{self._path}/{_FOLDER}/{self._name}.json"
        known = json.loads(disk.read(note) or "{}")
        if judge([known.get("marker", "")], marker, self._name) is Verdict.SKIP:
            self._move(disk, known["files"])
            # What stateful steps remember of it is not there yet.
            rows.write.format("noop").mode("overwrite").save()
            return
        if known:
            # The last batch may not have come to its moves.
            self._move(disk, known["files"])
        disk.delete(aside_folder(self._path, self._name))
        aside = new_aside(self._path, self._name)
        written = write_aside(disk, rows, aside, self._partition_by)
        files = self._named(written, aside, query_id, batch_id)
        disk.replace(note, json.dumps({"marker": write_marker(marker), "files": files}))
        self._move(disk, files)
        disk.delete(aside)

    def _named(
        self, written: list[str], aside: str, query_id: str, batch_id: int
    ) -> dict[str, str]:
        """Where each file goes; no other batch uses the name."""
        files: dict[str, str] = {}
        for number, file in enumerate(written):
            folder = file[len(aside) :].rpartition("/")[0]
            name = f"{query_id[:8]}-{self._name}-{batch_id:09d}-{number:05d}.parquet"
            files[file] = f"{self._path}{folder}/{name}"
        return files

    def _move(self, disk: Disk, files: dict[str, str]) -> None:
        for source, place in files.items():
            disk.move(source, place)
