"""Listeners of what happens to this node's replicas: coordinators load and unload their state, the
controller learns where logs are, the node learns which directories have failed.
"""

from collections.abc import Callable

from moldau.broker.replicas.partition import Partition
from moldau.storage.directory.directory import LogDirectory

OnLeadership = Callable[[Partition, bool], None]
OnPlacement = Callable[[Partition], None]
OnDirectoryFailure = Callable[[LogDirectory], None]


class ReplicaListeners:
    """A change of the metadata changes many leaderships: they are noted one by one, and reported
    when all of them are in force.
    """

    def __init__(self) -> None:
        self.leadership: list[OnLeadership] = []
        self.placement: list[OnPlacement] = []
        self.directory_failure: list[OnDirectoryFailure] = []
        self._noted: list[tuple[Partition, bool]] = []

    def note_leadership(self, partition: Partition, *, leads: bool) -> None:
        self._noted.append((partition, leads))

    def report_noted(self) -> None:
        noted, self._noted = self._noted, []
        for partition, leads in noted:
            self.report_leadership(partition, leads=leads)

    def report_leadership(self, partition: Partition, *, leads: bool) -> None:
        for listener in self.leadership:
            listener(partition, leads)

    def report_placement(self, partition: Partition) -> None:
        for listener in self.placement:
            listener(partition)

    def report_failure(self, directory: LogDirectory) -> None:
        for listener in self.directory_failure:
            listener(directory)
