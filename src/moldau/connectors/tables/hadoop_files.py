"""Files of tables, on whatever file system Spark knows."""

import secrets
from typing import Any

from moldau.protocol.errors import MoldauError


class Disk:
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
        found: list[str] = []
        if not system.exists(place):
            return found
        qualified = str(system.makeQualified(place))
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
        if not system.rename(old, new):
            raise MoldauError(f"{source} cannot be moved to {place}")

    def delete(self, folder: str) -> bool:
        """False: it was not there."""
        system, place = self._find(folder)
        return bool(system.delete(place, True))

    def rows(self, file: str) -> int:
        """Of a Parquet file, as its last bytes say."""
        parquet = self._jvm.org.apache.parquet.hadoop
        place = self._find(file)[1]
        source = parquet.util.HadoopInputFile.fromPath(place, self._configuration)
        reader = parquet.ParquetFileReader.open(source)
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    def size(self, path: str) -> int:
        system, place = self._find(path)
        return int(system.getFileStatus(place).getLen())


def aside_folder(table: str, name: str) -> str:
    return f"{table}/_moldau/aside/{name}"


def new_aside(table: str, name: str) -> str:
    """Another one for each attempt: tasks of a run that was killed may still be writing."""
    return f"{aside_folder(table, name)}/{secrets.token_hex(8)}"


def settled(
    disk: Disk, files: list[str], aside: str, folder: str, name: str
) -> list[tuple[str, str]]:
    """Moves files to where a commit will find them, each with the folders it was in below. Their
    names are flat, which needs no escaping, and nobody else's.
    """
    found = []
    for file in files:
        place = f"{folder}/{name}-{secrets.token_hex(8)}.parquet"
        disk.move(file, place)
        found.append((place, file[len(aside) :].rpartition("/")[0].strip("/")))
    return found


def write_aside(disk: Disk, rows: Any, aside: str, partition_by: tuple[str, ...]) -> list[str]:
    """The files; none if there are no rows. Raises MoldauError if they do not hold what tasks say
    they wrote: on a machine with a disk of its own Spark itself would not notice.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    counted = Observation()
    writer = rows.observe(counted, sql.count(sql.lit(1)).alias("rows")).write.mode("overwrite")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.parquet(aside)
    count = int(counted.get["rows"])
    if not count:
        return []
    files = disk.files(aside)
    found = sum(disk.rows(file) for file in files)
    if found != count:
        raise MoldauError(
            f"tasks wrote {count} rows to {aside}, and {found} are found there; "
            "a table's folder must be one that all machines share"
        )
    return files
