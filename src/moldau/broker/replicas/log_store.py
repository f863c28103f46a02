"""The logs of all log directories of a node. Chooses directories for new logs, sets unknown logs
aside, and decides whether the node continues with the intact part of a damaged log.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from moldau.broker.replicas.disk_reports import ACCEPT_DAMAGE
from moldau.core.metadata.image import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from moldau.net.chance import SYSTEM_CHANCE, random_uuid
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.directory.logs import Logs, OptionsFor
from moldau.storage.directory.unsynced_names import DoAll
from moldau.storage.disk.disk_steps import Steps
from moldau.storage.log.log import Log
from moldau.types import TopicPartition, Uuid, uuid_text

if TYPE_CHECKING:
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

_PREFERENCES_MAX = 10_000
_PROGRESS_MS = 5_000

AcceptsDamage = Callable[[Log], bool]
Refused: TypeAlias = dict[TopicPartition, KafkaError]
Making: TypeAlias = tuple[Logs, Collection[TopicPartition], Steps[Refused]]


class LogStore:
    def __init__(
        self,
        directories: Sequence[LogDirectory],
        options_for: OptionsFor,
        clock: "Clock",
        is_cordoned: Callable[[Path], bool] = lambda _path: False,
        unavailable: Sequence[Path] = (),
        chance: Random = SYSTEM_CHANCE,
    ) -> None:
        self.logs = [Logs(directory, options_for) for directory in directories]
        self.chance = chance
        self.unavailable = unavailable
        """Directories that could not even be opened."""
        self.is_cordoned = is_cordoned
        self.has_begun_to_load = False
        self.is_loaded = False
        """All logs are open and flushed: only then may a stop declare them clean."""
        self._preferred: dict[TopicPartition, Logs] = {}
        """The directory chosen for a log that does not exist yet."""
        self._clock = clock

    def __iter__(self) -> Iterator[Log]:
        for logs in self.online():
            yield from logs.by_partition.values()

    def online(self) -> list[Logs]:
        return [logs for logs in self.logs if logs.directory.is_online]

    @property
    def online_ids(self) -> list[Uuid]:
        return [logs.directory.meta.directory_id or MIGRATING_DIRECTORY for logs in self.online()]

    def load(self, accepts_damage: AcceptsDamage) -> None:
        """A directory that fails meanwhile is offline afterwards; the others are loaded."""
        now_ms = self._clock.wall_ms()
        for logs in self.logs:
            try:
                self._load_one(logs, now_ms)
                self._decide_on_damage(logs, accepts_damage, now_ms)
            except KafkaError as error:
                if logs.directory.is_online:
                    raise
                _log.error("log directory %s cannot be used: %s", logs.directory.path, error.detail)
        self._resolve_duplicates()
        for logs in self.online():
            for name, reason in logs.unreadable.items():
                _log.error("%s cannot be read: %s", logs.directory.path / name, reason)

    def _load_one(self, logs: Logs, now_ms: int) -> None:
        """Reports progress: a start after a crash may take long."""
        path, recovered = logs.directory.path, logs.directory.recovered
        began_ms = reported_ms = self._clock.mono_ms()

        def report(number: int, total: int) -> None:
            nonlocal reported_ms
            if self._clock.mono_ms() - reported_ms >= _PROGRESS_MS:
                reported_ms = self._clock.mono_ms()
                _log.warning(
                    "recovery of %s: %d of %d logs, %d bytes scanned",
                    path, number, total, recovered.bytes_scanned,
                )  # fmt: skip

        logs.load(now_ms, report)
        if logs.directory.clean_stop_epoch is None and recovered.logs:
            _log.warning(
                "%s was not stopped cleanly: %d logs were checked, %d bytes scanned, %d cut off "
                "that were never acknowledged, in %.1f s; there is nothing to do",
                path, recovered.logs, recovered.bytes_scanned, recovered.bytes_cut,
                (self._clock.mono_ms() - began_ms) / 1000,
            )  # fmt: skip

    def _decide_on_damage(self, logs: Logs, accepts_damage: AcceptsDamage, now_ms: int) -> None:
        for partition, log in list(logs.by_partition.items()):
            damage = log.damage
            if damage is None:
                continue
            lost = f"offsets {damage.first_offset} to {damage.promised_end - 1} ({damage.reason})"
            if accepts_damage(log):
                logs.accept_damage(partition, now_ms)
                _log.warning(
                    "%s lost %s; it continues without them, the damaged files are kept in %s",
                    partition, lost, log.path / "quarantine",
                )  # fmt: skip
            else:
                _log.error(
                    "%s is damaged and refuses all requests: it lost %s. Start once with %s=true "
                    "to continue without them",
                    partition, lost, ACCEPT_DAMAGE,
                )  # fmt: skip

    def holder(self, partition: TopicPartition) -> Logs | None:
        """The directory that has the partition's log, online or not."""
        return next((logs for logs in self.logs if partition in logs.by_partition), None)

    def log_of(self, partition: TopicPartition, topic_id: Uuid) -> Log | None:
        """Ignores the log of an earlier topic with that name."""
        holder = self.holder(partition)
        log = None if holder is None else holder.by_partition[partition]
        return None if log is None or log.topic_id not in {topic_id, None} else log

    def _resolve_duplicates(self) -> None:
        """A crash at the end of a move leaves two complete logs: the longer one stays."""
        counts = Counter(name for logs in self.online() for name in logs.by_partition)
        for name in [name for name, count in counts.items() if count > 1]:
            holders = [logs for logs in self.online() if name in logs.by_partition]
            keeper = max(holders, key=lambda logs: _worth(logs.by_partition[name]))
            for logs in holders:
                if logs is not keeper:
                    aside = logs.set_aside(name, random_uuid(self.chance))
                    _log.warning(
                        "%s is in %s too; the log in %s is set aside as %s",
                        name, keeper.directory.path, logs.directory.path, aside,
                    )  # fmt: skip

    def logs_of(self, log: Log) -> Logs:
        return next(logs for logs in self.logs if logs.directory is log.directory)

    def making(
        self, placements: Mapping[TopicPartition, tuple[Uuid, Uuid]], do_all: DoAll
    ) -> tuple[list[Making], Refused]:
        """Returns the steps that make new logs, and that persist everything made, deleted or set
        aside before. `placements`: topic id and directory of each log. Logs without a usable
        directory are refused.
        """
        refused: Refused = {}
        counts = {logs: len(logs.by_partition) + len(logs.futures) for logs in self.online()}
        by_directory: dict[Logs, dict[TopicPartition, Uuid]] = {logs: {} for logs in counts}
        for partition, (topic_id, directory_id) in placements.items():
            if self.log_of(partition, topic_id) is not None:
                continue
            try:
                logs = self._chosen(partition, directory_id, counts)
            except KafkaError as error:
                refused[partition] = error
                continue
            counts[logs] += 1
            by_directory[logs][partition] = topic_id
        now_ms = self._clock.wall_ms()
        making: list[Making] = [
            (logs, here, logs.making(here, now_ms, do_all)) for logs, here in by_directory.items()
        ]
        return making, refused

    def made(self, partition: TopicPartition) -> None:
        """The log exists now: its preferred directory no longer matters."""
        self._preferred.pop(partition, None)

    def _chosen(
        self, partition: TopicPartition, directory_id: Uuid, counts: Mapping[Logs, int]
    ) -> Logs:
        """The directory that is preferred or that the metadata names, or the one with the fewest
        logs. Raises KAFKA_STORAGE_ERROR.
        """
        preferred = self._preferred.get(partition)
        if preferred is not None and preferred.directory.is_online:
            return preferred
        return self._directory_for(partition, directory_id, counts)

    def prefer(self, partition: TopicPartition, logs: Logs) -> None:
        """Chooses the directory for the partition's log, if it is ever made. As in Kafka the choice
        does not outlive a restart, and overrides the metadata.
        """
        self._preferred.pop(partition, None)
        if len(self._preferred) >= _PREFERENCES_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[partition] = logs

    def _directory_for(
        self, partition: TopicPartition, directory_id: Uuid, counts: Mapping[Logs, int]
    ) -> Logs:
        online = self.online()
        if directory_id not in {UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, LOST_DIRECTORY}:
            for logs in online:
                if logs.directory.meta.directory_id == directory_id:
                    return logs
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} belongs in directory {uuid_text(directory_id)}, "
                "which is offline or does not belong to this node",
            )
        if len(online) < len(self.logs) or self.unavailable:
            # Its records may be in the directory that is offline: an empty log must not replace
            # them.
            exists = any(partition in logs.by_partition for logs in self.logs)
            if exists or directory_id != UNASSIGNED_DIRECTORY:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"the directory of {partition} is offline"
                )
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        # Better a cordoned one than none: the controller has placed the replica here.
        open_ones = [logs for logs in online if not self.is_cordoned(logs.directory.path)]
        return min(open_ones or online, key=lambda logs: counts[logs])

    def delete(self, partition: TopicPartition) -> None:
        """Deletes its log and the copy that may be on its way into another directory."""
        now_ms = self._clock.wall_ms()
        for logs in self.online():
            while partition in logs.by_partition or partition in logs.futures:
                logs.delete(partition, random_uuid(self.chance), now_ms)

    def set_aside(self, partition: TopicPartition, reason: str) -> None:
        for logs in self.online():
            while partition in logs.by_partition or partition in logs.futures:
                name = logs.set_aside(partition, random_uuid(self.chance))
                _log.warning(
                    "%s in %s is set aside as %s: %s", partition, logs.directory.path, name, reason
                )

    def set_strays_aside(self, known: Callable[[TopicPartition], bool]) -> None:
        """Sets logs aside that belong to no topic of this cluster."""
        for partition in self._partitions(self.online()):
            if not known(partition):
                self.set_aside(partition, "it belongs to no topic with a replica here")

    @staticmethod
    def _partitions(all_logs: Iterable[Logs]) -> list[TopicPartition]:
        return [p for logs in all_logs for p in (*logs.by_partition, *logs.futures)]


def _worth(log: Log) -> tuple[bool, int]:
    return log.damage is None, log.log_end_offset
