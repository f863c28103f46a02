"""Listeners of what happens to this node's replicas: coordinators load and unload their state, the
controller learns where logs are, the node learns which directories have failed.
"""

import logging
from collections.abc import Callable

from moldau.broker.replicas.partition import Partition
from moldau.storage.directory.directory import LogDirectory
from moldau.unexpected import Attempts

_log = logging.getLogger(__name__)

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
        """Raises the first error of a listener, after all others are notified."""
        noted, self._noted = self._noted, []
        attempts = Attempts(_log, "a listener to leaderships")
        for partition, leads in noted:
            for listener in self.leadership:
                attempts.make(listener, partition, leads)
        attempts.end()

    def report_placement(self, partition: Partition) -> None:
        for listener in self.placement:
            listener(partition)

    def report_failure(self, directory: LogDirectory) -> None:
        for listener in self.directory_failure:
            listener(directory)
