"""Files of tables on all file systems that Spark knows."""

import secrets
from typing import Any

from moldau.protocol.errors import MoldauError


class HadoopFileSystem:
    """Any file system that Spark can reach, by the URLs of files and folders."""

    def __init__(self, session: Any) -> None:
        self._jvm = session.sparkContext._jvm
        self._gateway = session.sparkContext._gateway
        self._configuration = session.sparkContext._jsc.hadoopConfiguration()

    def _find(self, path: str) -> tuple[Any, Any]:
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        return found.getFileSystem(self._configuration), found

    def read(self, path: str) -> str | None:
        """None if the file does not exist."""
        system, file = self._find(path)
        if not system.exists(file):
            return None
        stream = system.open(file)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def replace(self, path: str, content: str) -> None:
        """Replaces a file atomically."""
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
        """Parquet files in the folder and below, sorted by name."""
        system, root = self._find(folder)
        files: list[str] = []
        if not system.exists(root):
            return files
        qualified = str(system.makeQualified(root))
        listed = system.listFiles(root, True)
        while listed.hasNext():
            path = str(listed.next().getPath())
            if path.endswith(".parquet"):
                files.append(folder + path[len(qualified) :])
        return sorted(files)

    def move(self, source: str, target: str) -> None:
        """Moves a file. A second call has no effect."""
        system, old = self._find(source)
        if not system.exists(old):
            return
        new = self._find(target)[1]
        system.mkdirs(new.getParent())
        if not system.rename(old, new):
            raise MoldauError(f"{source} cannot be moved to {target}")

    def delete(self, folder: str) -> bool:
        """False if the folder did not exist."""
        system, path = self._find(folder)
        return bool(system.delete(path, True))

    def rows(self, file: str) -> int:
        """The number of rows in a Parquet file, read from its footer."""
        parquet = self._jvm.org.apache.parquet.hadoop
        path = self._find(file)[1]
        source = parquet.util.HadoopInputFile.fromPath(path, self._configuration)
        reader = parquet.ParquetFileReader.open(source)
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    def size(self, path: str) -> int:
        system, file = self._find(path)
        return int(system.getFileStatus(file).getLen())


def staging_root(table: str, name: str) -> str:
    return f"{table}/_moldau/aside/{name}"


def new_staging_folder(table: str, name: str) -> str:
    """A new folder for each attempt: tasks of a killed run may still be writing to theirs."""
    return f"{staging_root(table, name)}/{secrets.token_hex(8)}"


def moved_files(
    disk: HadoopFileSystem, files: list[str], staging: str, folder: str, name: str
) -> list[tuple[str, str]]:
    """Moves files into the table's folder, for the commit. Returns each new path, with the
    partition folders that the file was in. New names are unique and flat, which needs no escaping.
    """
    moved = []
    for file in files:
        path = f"{folder}/{name}-{secrets.token_hex(8)}.parquet"
        disk.move(file, path)
        moved.append((path, file[len(staging) :].rpartition("/")[0].strip("/")))
    return moved


def write_to_staging(
    disk: HadoopFileSystem, rows: Any, staging: str, partition_by: tuple[str, ...]
) -> list[str]:
    """Writes rows to files and returns their paths; none without rows. Raises MoldauError if the
    files do not hold the rows that tasks wrote: if machines do not share the folder, Spark itself
    does not notice.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    counted = Observation()
    writer = rows.observe(counted, sql.count(sql.lit(1)).alias("rows")).write.mode("overwrite")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.parquet(staging)
    count = int(counted.get["rows"])
    if not count:
        return []
    files = disk.files(staging)
    read = sum(disk.rows(file) for file in files)
    if read != count:
        raise MoldauError(
            f"tasks wrote {count} rows to {staging}, but it holds {read}; "
            "a table must be in a folder that all machines share"
        )
    return files
