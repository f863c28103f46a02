"""The history of a simulation as a checksum: equal for two runs if the same happened in both."""

from zlib import crc32


class Trace:
    """Every event at a seam: the network, a disk, a thread, the life of a process."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.checksum = 0
        self.count = 0
        self.lines: list[str] = []
        """The events as text, if they are kept: to find the first difference of two runs."""
        self._keeps_lines = keeps_lines

    def add(self, now_s: float, where: str, kind: str, *payload: object) -> None:
        """`payload` must have a text that is the same in every process."""
        line = f"{now_s:.9f} {where} {kind} {payload}"
        self.checksum = crc32(line.encode(), self.checksum)
        self.count += 1
        if self._keeps_lines:
            self.lines.append(line)
