"""Parquet, each row once: tasks write files aside, the driver writes down which files the batch
consists of (that is the commit) and moves them to their places. A batch that Spark runs again is
recognised by what is written down; moves that were not done are done then.
"""

import json
from typing import Any

from moldau.core.pipelines.exactly_once import Marker, Verdict, digest_of, judge, write_marker
from moldau.core.pipelines.graph import Table
from moldau.spark.exactly_once_sink import offset_lines

_FOLDER = "_moldau"
_QUERY_ID = "sql.streaming.queryId"


class ParquetTable:
    """`name` is the query's and flow's own: what is committed is kept under it."""

    def __init__(self, table: Table, name: str, checkpoint: str) -> None:
        self._path = table.path.rstrip("/")
        self._partition_by = table.partition_by
        self._name = name
        self._checkpoint = checkpoint

    def write(self, rows: Any, batch_id: int) -> None:
        session = rows.sparkSession
        disk = _Disk(session)
        lines = offset_lines(session, self._checkpoint, batch_id)
        query_id = session.sparkContext.getLocalProperty(_QUERY_ID) or ""
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
        aside = f"{self._path}/{_FOLDER}/aside-{self._name}"
        count = self._write_aside(rows, aside)
        files = self._named(disk, aside, query_id, batch_id) if count else {}
        disk.replace(note, json.dumps({"marker": write_marker(marker), "files": files}))
        self._move(disk, files)
        disk.delete(aside)

    def _write_aside(self, rows: Any, aside: str) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as sql

        counted = Observation()
        writer = rows.observe(counted, sql.count(sql.lit(1)).alias("rows")).write.mode("overwrite")
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.parquet(aside)
        return int(counted.get["rows"])

    def _named(self, disk: "_Disk", aside: str, query_id: str, batch_id: int) -> dict[str, str]:
        """Where each file goes; no other batch uses the name."""
        files: dict[str, str] = {}
        for number, file in enumerate(disk.files(aside)):
            folder = file[len(aside) :].rpartition("/")[0]
            name = f"{query_id[:8]}-{self._name}-{batch_id:09d}-{number:05d}.parquet"
            files[file] = f"{self._path}{folder}/{name}"
        return files

    def _move(self, disk: "_Disk", files: dict[str, str]) -> None:
        for source, place in files.items():
            disk.move(source, place)


class _Disk:
    """The file system of a path, as Spark knows it."""

    def __init__(self, session: Any) -> None:
        self._jvm = session.sparkContext._jvm
        self._gateway = session.sparkContext._gateway
        self._configuration = session.sparkContext._jsc.hadoopConfiguration()

    def _find(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._configuration), place

    def read(self, path: str) -> str | None:
        system, place = self._find(path)
        if not system.exists(place):
            return None
        stream = system.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def replace(self, path: str, content: str) -> None:
        """All of it or nothing, whatever happens."""
        system, beside = self._find(f"{path}.new")
        stream = system.create(beside, True)
        try:
            stream.write(bytearray(content.encode()))
            stream.hsync()
        finally:
            stream.close()
        files = self._jvm.org.apache.hadoop.fs
        context = files.FileContext.getFileContext(beside.toUri(), self._configuration)
        options = self._gateway.new_array(files.Options.Rename, 1)
        options[0] = files.Options.Rename.OVERWRITE
        context.rename(beside, self._find(path)[1], options)

    def files(self, folder: str) -> list[str]:
        """Parquet files below it, in the order of their names."""
        system, place = self._find(folder)
        qualified = str(system.makeQualified(place))
        found = []
        listed = system.listFiles(place, True)
        while listed.hasNext():
            path = str(listed.next().getPath())
            if path.endswith(".parquet"):
                found.append(folder + path[len(qualified) :])
        return sorted(found)

    def move(self, source: str, place: str) -> None:
        """Done before is done."""
        system, old = self._find(source)
        if not system.exists(old):
            return
        new = self._find(place)[1]
        system.mkdirs(new.getParent())
        system.rename(old, new)

    def delete(self, folder: str) -> None:
        system, place = self._find(folder)
        system.delete(place, True)
