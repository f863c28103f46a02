"""The metadata log of one node as an observer sees it: every batch, and how far it was flushed. It
is kept while the node is down.
"""

from typing import NamedTuple

from moldau.broker.quorum.metadata_log import MetadataLog
from moldau.protocol.records.batches import RecordBatch, iterate_batches
from moldau.storage.disk.filesystem import read_whole


class Entry(NamedTuple):
    """One batch. `content` is not compared: its checksum is."""

    base_offset: int
    last_offset: int
    epoch: int
    checksum: int
    content: bytes

    def is_same(self, other: "Entry") -> bool:
        return self[:4] == other[:4]

    @property
    def batch(self) -> RecordBatch:
        return RecordBatch(self.content)


class LogMirror:
    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.flushed_offset = 0
        self._entries: dict[int, Entry] = {}
        """By base offset, in their order."""
        self._ending: dict[int, Entry] = {}
        """By last offset."""
        self._sizes: dict[int, int] = {}
        """How much of each segment was read."""
        self._truncations = -1

    def refresh(self, log: MetadataLog) -> list[Entry]:
        """Reads what has changed. Returns the flushed entries that are gone, without those before
        the start of the log.
        """
        stored = log.log
        removed: list[Entry] = []
        if log.truncations != self._truncations or stored.log_end_offset < self.end_offset:
            self._truncations = log.truncations
            self._sizes.clear()
            was, self._entries, self._ending = self._entries, {}, {}
            self._read(log)
            removed = [
                each
                for each in was.values()
                if each.last_offset < self.flushed_offset and not self._has(each)
            ]
        else:
            self._read(log)
        self.start_offset, self.end_offset = stored.log_start_offset, stored.log_end_offset
        self.flushed_offset = stored.flushed_offset
        return [each for each in removed if each.last_offset >= self.start_offset]

    def begin_life(self) -> None:
        """The next refresh reads everything anew."""
        self._truncations = -1

    def entry_at(self, last_offset: int) -> Entry | None:
        """The entry that ends there."""
        return self._ending.get(last_offset)

    def entries(self, start: int, end: int) -> list[Entry]:
        """Those that begin between the two offsets."""
        return [each for base, each in self._entries.items() if start <= base < end]

    def holds(self, entry: Entry) -> bool:
        """On its disk, in its log or in a snapshot."""
        if self.start_offset > entry.last_offset:
            return True
        return entry.last_offset < self.flushed_offset and self._has(entry)

    def _has(self, entry: Entry) -> bool:
        found = self._entries.get(entry.base_offset)
        return found is not None and found.is_same(entry)

    def _read(self, log: MetadataLog) -> None:
        filesystem = log.directory.filesystem
        for segment in log.log.segments:
            known = self._sizes.get(segment.base_offset, 0)
            if segment.size == known:
                continue
            content = read_whole(filesystem, segment.path())[known : segment.size]
            self._sizes[segment.base_offset] = segment.size
            for batch in iterate_batches(content):
                entry = Entry(
                    batch.base_offset,
                    batch.last_offset,
                    batch.partition_leader_epoch,
                    batch.crc,
                    bytes(batch.view),
                )
                self._entries[entry.base_offset] = self._ending[entry.last_offset] = entry
