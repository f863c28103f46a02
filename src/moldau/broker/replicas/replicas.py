"""All partitions that have a replica on this node. Follows the metadata: makes and deletes logs,
begins leader epochs, changes settings of running logs; and knows which partitions it leads.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, ParamSpec

from moldau.broker.records.cold_reads import ColdReads
from moldau.broker.replicas.disk_reports import DiskReports
from moldau.broker.replicas.disk_threads import DiskThreads
from moldau.broker.replicas.flush_backlog import FlushBacklog
from moldau.broker.replicas.flush_rounds import FlushRounds
from moldau.broker.replicas.listeners import (
    OnDirectoryFailure,
    OnLeadership,
    OnPlacement,
    ReplicaListeners,
)
from moldau.broker.replicas.log_cleaning import LogCleaning
from moldau.broker.replicas.log_loading import load_logs
from moldau.broker.replicas.log_moves import LogMoves, check_movable, check_name
from moldau.broker.replicas.log_settings import LogSettings, TopicSettings
from moldau.broker.replicas.log_store import LogStore
from moldau.broker.replicas.log_upkeep import LogUpkeep
from moldau.broker.replicas.partition import Partition
from moldau.broker.replicas.pending_logs import LogOwner, LogPlacement, PendingLogs
from moldau.broker.server.deadlines import Deadlines, WakeUps
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage
from moldau.core.partition.leader import ProposeIsr
from moldau.net.chance import SYSTEM_CHANCE
from moldau.net.tasks import Tasks
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.failures import DiskFullError
from moldau.storage.log.log import Log
from moldau.types import (
    NO_BROKER_EPOCH,
    NO_EPOCH,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicPartition,
    Uuid,
)
from moldau.unexpected import Attempts, log_unexpected

if TYPE_CHECKING:
    from moldau.broker.server.context import ConfigHolder
    from moldau.net.clock import Clock
    from moldau.storage.directory.unsynced_names import DoAll
    from moldau.storage.log.state import LogState

_log = logging.getLogger(__name__)

P = ParamSpec("P")

WORKERS_MAX = 2


class Replicas:
    """`directories` are open and locked; `stop` closes them."""

    def __init__(  # noqa: PLR0913 - what a node lends its replicas
        self,
        directories: Sequence[LogDirectory],
        *,
        node_id: BrokerId,
        clock: "Clock",
        settings: "ConfigHolder",
        unavailable: Sequence[Path] = (),
        flush_backlog: FlushBacklog | None = None,
        chance: Random = SYSTEM_CHANCE,
        do_all: "DoAll | None" = None,
    ) -> None:
        """`unavailable` are directories that could not be opened; the others are used."""
        self._node_id = node_id
        self._clock = clock
        self._image: MetadataImage = EMPTY_IMAGE
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._listeners = ReplicaListeners()
        self.deadlines = Deadlines(clock)
        self.wake_ups = WakeUps()
        self.workers = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="moldau-worker")
        """For requests that would block the event loop; it gets its own copies."""
        self.cold_reads = ColdReads()
        self.flush_rounds = FlushRounds(
            clock, settings, self._flushed, self._flush_failed, flush_backlog
        )
        self._log_settings = LogSettings(
            settings, lambda: self._image, self.flush_rounds.flusher, chance
        )
        self.store = LogStore(
            directories,
            self._log_settings.options_for,
            clock,
            self._log_settings.is_cordoned,
            unavailable=unavailable,
            chance=chance,
        )
        self.tasks = Tasks(are_measured=True)
        self.disk = DiskThreads(directories)
        owner = LogOwner(
            self._placement_of,
            lambda name, refused: self._contained(self._log_made, name, refused),
            lambda: self._contained(self._listeners.report_noted),
            self._delete_log,
            self._has_no_room,
        )
        do_all = do_all or self.flush_rounds.do_all
        self._pending = PendingLogs(self.store, self.disk, do_all, owner)
        self._moves = LogMoves(
            self.store, self.disk, self.tasks, clock, self.cold_reads, self._moved
        )
        self.reports = DiskReports(directories, clock)
        self._upkeep = LogUpkeep(self.store, self.disk, self.tasks, clock, settings, self.reports)
        self.cleaning = LogCleaning(self.store, self.disk, self.tasks, clock, settings)
        for directory in directories:
            directory.on_failure(self._directory_failed)

    # Leadership

    @property
    def partitions(self) -> Mapping[tuple[str, int], Partition]:
        return MappingProxyType(self._partitions)

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def lookup(
        self, topic: str, index: int, current_leader_epoch: LeaderEpoch = NO_EPOCH
    ) -> Partition:
        """The partition, if this broker leads it. Raises the client's error otherwise."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise self._absent(TopicPartition(topic, index))
        partition.leading(current_leader_epoch)
        if not partition.has_log:
            raise partition.failure or KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return partition

    def _absent(self, name: TopicPartition) -> KafkaError:
        if self._image.partition(name) is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} has no replica here")

    def on_leadership(self, listener: OnLeadership) -> None:
        """Called with True for each leader epoch that begins here, current ones included, and with
        False when one ends and no other follows.
        """
        self._listeners.leadership.append(listener)
        for partition in list(self._partitions.values()):
            if partition.leader is not None:
                listener(partition, True)

    def on_directory_failure(self, listener: OnDirectoryFailure) -> None:
        """The controller must be notified; a node without any directory stops."""
        self._listeners.directory_failure.append(listener)

    def on_placement(self, listener: OnPlacement) -> None:
        """Called when a log is not in the directory that the metadata names."""
        self._listeners.placement.append(listener)

    # Following the metadata

    async def load(self, image: MetadataImage) -> None:
        """Opens all logs with the settings in `image`, and begins to lead or follow the partitions
        that it assigns to this broker. Call it once, in the event loop, with an up-to-date image.
        """
        starting = asyncio.current_task()
        assert starting is not None
        self.store.is_given_up = lambda: starting.cancelling() > 0
        self._image = image
        await load_logs(
            self.store, self.flush_rounds, self._log_settings.accepts_damage, self._is_known
        )
        self._follow(MetadataDelta.between(EMPTY_IMAGE, image), image)
        self._pending.begin(self.tasks)
        await self.wait_caught_up()
        for partition in self._partitions.values():
            self._moves.resume(partition)
        self._upkeep.start(self.cold_reads)
        self.cleaning.start()

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The metadata changed to `image`. Partitions are added once their logs are on the disk;
        logs of removed partitions are deleted in the background, too.
        """
        try:
            self._follow(delta, image)
        finally:
            self._pending.begin(self.tasks)

    def _follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._image = image
        if delta.deleted_topics:
            self._remove_topics(delta.deleted_topics)
        attempts = Attempts(_log, "a part of a metadata change")
        for name in sorted(delta.changed_topics):
            topic = image.topic(name)
            if topic is not None:
                attempts.make(self._apply_topic, topic)
        attempts.make(self._apply_settings, delta, image)
        attempts.make(self._listeners.report_noted)
        attempts.end()

    async def wait_caught_up(self) -> None:
        """Waits until exactly the logs exist that the metadata requires."""
        await self._pending.wait()

    def catch_up_blocking(self) -> None:
        """Like `wait_caught_up`, for callers outside of an event loop."""
        self._pending.catch_up_blocking()

    def _apply_topic(self, topic: TopicImage) -> None:
        for index, partition in topic.partitions.items():
            name = TopicPartition(topic.name, index)
            existing = self._partitions.get(name)
            if existing is not None and existing.topic_id != topic.topic_id:
                # Deleted and created again: nothing of the old topic may remain.
                self._remove(existing)
                existing = None
            if self._node_id in partition.replicas:
                if existing is None or not existing.has_log:
                    self._pending.make(name)
                if existing is not None:
                    self._add_or_update(name, topic.topic_id, partition)
            elif existing is not None:
                self._remove(existing)

    def _add_or_update(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        image: PartitionImage,
        refused: KafkaError | None = None,
    ) -> None:
        partition = self._partitions.get(name)
        if partition is None:
            partition = Partition(name, topic_id, self._clock, self._propose_isr)
            settings = self._log_settings.of_topic(name.topic)
            partition.min_insync_replicas = settings.log.min_insync_replicas
            self._partitions[name] = partition
        had_log = partition.has_log
        if not had_log:
            self._assign_log(partition, image, refused)
        if image.leader != self._node_id:
            led = partition.leader is not None
            partition.follow(image)
            if led:
                self._listeners.note_leadership(partition, leads=False)
            return
        is_new = partition.leader is None or image.leader_epoch > partition.leader_epoch
        is_new = is_new or partition.has_log is not had_log
        partition.lead(image)
        if is_new:
            self._listeners.note_leadership(partition, leads=True)

    def _assign_log(
        self, partition: Partition, image: PartitionImage, refused: KafkaError | None
    ) -> None:
        name = partition.topic_partition
        log = self.store.log_of(name, partition.topic_id)
        try:
            if refused is not None:
                raise refused
            if log is None:
                # Its log is made later.
                return
            log.directory.check_online()
            partition.use_log(log)
            self.store.made(name)
            if log.directory.meta.directory_id != _directory_of(image, self._node_id):
                self._listeners.report_placement(partition)
        except KafkaError as error:
            partition.lose_log(error)
            is_full = isinstance(error, DiskFullError)
            if not is_full or self._pending.wait_for_room(name, self.tasks, self._clock):
                _log.error("%s has no log: %s", name, error.detail)

    def _log_made(self, name: TopicPartition, refused: KafkaError | None) -> None:
        topic, image = self._image.topic(name.topic), self._image.partition(name)
        if topic is not None and image is not None:
            self._add_or_update(name, topic.topic_id, image, refused)

    def _placement_of(self, name: TopicPartition) -> LogPlacement | None:
        topic, image = self._image.topic(name.topic), self._image.partition(name)
        if topic is None or image is None or self._node_id not in image.replicas:
            return None
        return LogPlacement(topic.topic_id, _directory_of(image, self._node_id))

    def _has_no_room(self, name: TopicPartition) -> bool:
        partition = self._partitions.get(name)
        return partition is not None and isinstance(partition.failure, DiskFullError)

    def _remove_topics(self, topic_ids: Mapping[str, Uuid]) -> None:
        for partition in list(self._partitions.values()):
            if topic_ids.get(partition.topic_partition.topic) == partition.topic_id:
                self._remove(partition)

    def _remove(self, partition: Partition) -> None:
        """Its log is deleted later."""
        name = partition.topic_partition
        del self._partitions[name]
        led = partition.leader is not None
        partition.close(
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is no longer on this broker")
        )
        if led:
            self._listeners.note_leadership(partition, leads=False)
        self._pending.delete(name)

    def _delete_log(self, name: TopicPartition) -> None:
        """In two steps; background work does the second one."""
        try:
            self.cleaning.forget(name)
            self.store.delete(name)
        except KafkaError as error:
            _log.error("%s could not be deleted: %s", name, error.detail)

    def _is_known(self, name: TopicPartition) -> bool:
        partition = self._image.partition(name)
        return partition is not None and self._node_id in partition.replicas

    def _contained(self, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """After a log was made: an error concerns no other log."""
        try:
            work(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the other logs are made, too
            self.reports.failures["metadata"] += 1
            log_unexpected(_log, "a part of a metadata change", error)

    # Settings

    def _apply_settings(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The settings of topics, and this broker's, which are the topics' defaults."""
        changed = delta.changed_configs
        kind = ConfigResourceType.TOPIC
        topics: Iterable[str] = sorted(r.name for r in changed if r.kind is kind)
        if any(
            r.kind is ConfigResourceType.BROKER and r.name in {"", str(self._node_id)}
            for r in changed
        ):
            topics = image.topics
            self.cleaning.settings_changed()
        for name in topics:
            topic = image.topic(name)
            if topic is None:
                continue
            settings = self._log_settings.of_topic(name)
            for index in topic.partitions:
                partition = self._partitions.get((name, index))
                if partition is not None:
                    self._change_settings(partition, settings)

    def _change_settings(self, partition: Partition, settings: TopicSettings) -> None:
        if partition.has_log:
            self._log_settings.change(partition.log, settings)
        if partition.min_insync_replicas != settings.log.min_insync_replicas:
            partition.min_insync_replicas_changed(settings.log.min_insync_replicas)
        partition.log_advanced()

    # Events

    def _flushed(self, log: "LogState", failure: KafkaError | None = None) -> None:
        partition = self._partitions.get(log.topic_partition)
        if partition is not None and partition.has_log and partition.log is log:
            partition.log_advanced(failure)

    def _flush_failed(self, log: "LogState", error: Exception) -> None:
        name = log.topic_partition
        self.reports.failed("flush", name, error)
        detail = f"a flush of {name} failed unexpectedly"
        self._flushed(log, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, detail))

    def _directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        _log.error("log directory %s is offline: %s", directory.path, error)
        failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline: {error}")
        for partition in list(self._partitions.values()):
            if partition.has_log and partition.log.directory is directory:
                partition.lose_log(failure)
                if partition.leader is not None:
                    self._listeners.note_leadership(partition, leads=False)
        attempts = Attempts(_log, "a listener to a failed directory")
        attempts.make(self._listeners.report_noted)
        attempts.make(self._listeners.report_failure, directory)
        attempts.end()

    def _propose_isr(self, partition: Partition, proposal: ProposeIsr) -> None:
        _log.warning(
            "%s: %s is not proposed: replication is not available yet", partition, proposal
        )
        if partition.leader is not None:
            partition.leader.proposal_failed()

    async def delete_records(self, offsets: Mapping[Log, Offset]) -> dict[Log, Offset | KafkaError]:
        """Returns the new start of each log, which is then on the disk, or why it has not moved."""
        results: dict[Log, Offset | KafkaError] = {}
        for logs in self.store.logs:
            here = {log: to for log, to in offsets.items() if log.directory is logs.directory}
            if here:
                results |= await self.disk.run(logs.directory, logs.deleting_records(here))
        return results

    # Moving between directories

    def move(self, name: TopicPartition, path: Path) -> None:
        """Starts a move of the replica to another log directory. Raises KafkaError. A replica that
        does not exist yet will be made there.
        """
        target = next((logs for logs in self.store.logs if logs.directory.path == path), None)
        if target is None:
            raise KafkaError(
                ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not a log directory of this node"
            )
        check_name(name)
        target.directory.check_online()
        if self.store.is_cordoned(path):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned")
        partition = self._partitions.get(name)
        if partition is None:
            self.store.prefer(name, target)
            raise self._absent(name)
        check_movable(self.store, partition)
        self._moves.move(partition, target)

    def _moved(self, partition: Partition) -> None:
        self.cleaning.moved(partition.log)
        self._listeners.report_placement(partition)

    async def stop(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Flushes everything to the disk, and writes the marker of a clean shutdown."""
        await self._end_background_work()
        # The next start would not know their owner.
        self._pending.delete_blocking()
        await self._stop_parts()
        for logs in self.store.logs:
            try:
                logs.stop(broker_epoch)
            except KafkaError as error:
                _log.error("%s was not stopped cleanly: %s", logs.directory.path, error.detail)

    async def abandon(self) -> None:
        """Releases everything and writes nothing: the next start recovers, as after a crash."""
        await self._end_background_work()
        await self._stop_parts()
        for logs in self.store.logs:
            logs.abandon()

    async def _end_background_work(self) -> None:
        self.cleaning.stop()
        await self.tasks.close()
        await self.disk.stop()

    async def _stop_parts(self) -> None:
        self.workers.shutdown(wait=False, cancel_futures=True)
        self.cold_reads.close()
        await self.flush_rounds.stop()
        stopping = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the node is stopping")
        for partition in self._partitions.values():
            partition.close(stopping)


def _directory_of(image: PartitionImage, node_id: BrokerId) -> Uuid:
    return image.directories[image.replicas.index(node_id)]
