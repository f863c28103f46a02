"""The parts of a node with the broker role, in the order of their dependencies."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from moldau.broker.cluster.directory_assignments import DirectoryAssignments
from moldau.broker.cluster.lifecycle import BrokerIdentity, BrokerLifecycle
from moldau.broker.cluster.peers import LocalPeers
from moldau.broker.cluster.producer_ids import ProducerIds
from moldau.broker.cluster.topic_creation import TopicCreation
from moldau.broker.controller.controller_channel import (
    ActiveControllerChannel,
    ClientRequestChannel,
)
from moldau.broker.coordinators.groups import GroupCoordinator
from moldau.broker.coordinators.markers import TransactionMarkers
from moldau.broker.coordinators.transactions import TransactionCoordinator
from moldau.broker.coordinators.verification import TransactionVerification
from moldau.broker.handlers.table import broker_table
from moldau.broker.records.fetch_sessions import FetchSessions
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.server.context import BrokerServices
from moldau.broker.server.deadlines import Deadlines
from moldau.broker.server.dispatch import Dispatcher
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MIGRATING_DIRECTORY
from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import BrokerId

if TYPE_CHECKING:
    from moldau.broker.controller.controller_channel import Route
    from moldau.broker.node.metadata_parts import MetadataParts
    from moldau.broker.node.node import Node
    from moldau.config.broker import BrokerConfig
    from moldau.core.metadata.image import MetadataImage
    from moldau.storage.directory.directory import LogDirectory

_log = logging.getLogger(__name__)

_LEAVE_TIMEOUT_MS = 30_000
_HEARTBEATS_PER_SESSION = 3
_WORKERS_MAX = 2


class BrokerParts:
    def __init__(self, node: "Node", metadata: "MetadataParts", route: "Route") -> None:
        self._node = node
        self._metadata = metadata
        self._has_followers = False
        config, clock, chance = node.config, node.clock, node.host.chance
        self.directories = directories = metadata.directories
        settings, feed = metadata.settings, metadata.feed
        self.replicas = Replicas(
            directories.logs,
            node_id=BrokerId(config.node_id),
            clock=clock,
            settings=settings,
            unavailable=directories.unavailable,
            flush_backlog=node.flush_backlog,
            chance=chance,
            do_all=node.host.do_all,
        )
        self._channels = [
            ActiveControllerChannel(route, "forwarding"),
            ActiveControllerChannel(route, "heartbeat", self._heartbeat_patience_ms),
            ActiveControllerChannel(route, "assignments"),
        ]
        forwarding, self._heartbeats, assignments_channel = self._channels
        self.channel = ClientRequestChannel(forwarding, route, feed, self.replicas.wait_caught_up)
        self.lifecycle = self._new_lifecycle()
        settings.subscribe(self.lifecycle.settings_changed)
        settings.check_with(node.listeners.check)
        self.replicas.on_directory_failure(self._directory_failed)
        self.topic_creation = TopicCreation(self.channel, settings)
        self.groups = GroupCoordinator(self.replicas, clock, settings, feed, chance=chance)
        self.tasks = Tasks(are_measured=True)
        self.peers = LocalPeers(config.node_id, settings, clock)
        self.producer_ids = ProducerIds(config.node_id, forwarding, self._broker_epoch)
        self.markers = TransactionMarkers(self.peers, feed, clock)
        self.transactions = TransactionCoordinator(
            self.replicas, clock, settings, feed, self.producer_ids, self.markers
        )
        assignments = DirectoryAssignments(
            config.node_id, assignments_channel, self._broker_epoch, self.tasks, clock
        )
        self.replicas.on_placement(assignments.placed)
        self._workers = ThreadPoolExecutor(_WORKERS_MAX, thread_name_prefix="moldau-worker")
        self.services = self._new_services()
        table = broker_table(unstable=config.unstable_api_versions_enable)
        self.dispatcher = Dispatcher(self.services, table, node.metrics.loop)
        self.peers.serve_with(self.dispatcher)

    def _heartbeat_patience_ms(self) -> float:
        """A session survives the loss of some heartbeats."""
        return self._metadata.settings.current.broker_session_timeout_ms / _HEARTBEATS_PER_SESSION

    def _new_lifecycle(self) -> BrokerLifecycle:
        config, directories, metadata = self._node.config, self.directories, self._metadata
        identity = BrokerIdentity(
            node_id=config.node_id,
            cluster_id=directories.cluster_id,
            incarnation_id=metadata.incarnation_id,
            directories={
                str(each.path): each.meta.directory_id or MIGRATING_DIRECTORY
                for each in directories.logs
            },
            previous_epoch=directories.previous_epoch,
        )
        return BrokerLifecycle(
            identity, self._heartbeats, metadata.feed, metadata.settings, self._node.clock
        )

    def _new_services(self) -> BrokerServices:
        node, metadata = self._node, self._metadata
        return BrokerServices(
            node_id=node.config.node_id,
            cluster_id=self.directories.cluster_id,
            clock=node.clock,
            settings=metadata.settings,
            metadata=metadata.feed,
            metrics=node.metrics,
            budget=node.budget,
            quorum=metadata.quorum,
            controller=self.channel,
            replicas=self.replicas,
            groups=self.groups,
            producer_ids=self.producer_ids,
            transactions=self.transactions,
            verification=TransactionVerification(
                self.peers, metadata.feed, metadata.settings, node.clock, self.tasks
            ),
            fetch_sessions=FetchSessions(
                node.config.max_incremental_fetch_session_cache_slots, node.host.chance
            ),
            topic_creation=self.topic_creation,
            # It always has a connection.
            controller_versions=lambda: self._heartbeats.served,
            deadlines=Deadlines(node.clock),
            workers=self._workers,
        )

    def _settings_changed(self, _before: "BrokerConfig", after: "BrokerConfig") -> None:
        listeners = self._node.listeners
        listeners.follow(after)
        for listener in listeners.all:
            listener.read_limits()
        self._advertise()

    def _advertise(self) -> None:
        endpoints = self._node.listeners.endpoints(self._metadata.settings.current)
        self.lifecycle.advertise(endpoints)

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    def _report_followers(self, delta: "MetadataDelta", image: "MetadataImage") -> None:
        """Once: a replica that does not lead here gets no records yet."""
        node_id = self._node.config.node_id
        for name in sorted(delta.changed_topics):
            topic = image.topic(name)
            if topic is None or self._has_followers:
                continue
            if any(
                len(each.replicas) > 1 and node_id in each.replicas
                for each in topic.partitions.values()
            ):
                self._has_followers = True
                _log.warning(
                    "topic %s has several replicas, one of them on this node: Moldau brokers do "
                    "not replicate records yet, so that acks=all and its consumers wait for "
                    "replicas of Apache Kafka; use a replication factor of 1",
                    name,
                )

    async def start(self) -> None:
        """Clients are served once the controller has unfenced the broker."""
        metadata, listeners = self._metadata, self._node.listeners
        listeners.apply_stored_settings(metadata.settings.current)
        self._advertise()
        metadata.settings.subscribe(self._settings_changed)
        await self._node.unless_failed(self.lifecycle.start(), "register")
        # Only now is the metadata complete.
        listeners.apply_stored_settings(metadata.settings.current)
        self._advertise()
        loaded = metadata.feed.image
        await self.replicas.load(loaded)
        if self._node.failure is not None:
            # The controller would never unfence a broker without a directory.
            raise MoldauError(self._node.failure)
        metadata.feed.subscribe(self.replicas.apply, loaded)
        everything = MetadataDelta.between(EMPTY_IMAGE, loaded)
        await asyncio.to_thread(self._report_followers, everything, loaded)
        metadata.feed.subscribe(self._report_followers, loaded)
        self.groups.start()
        self.transactions.start()
        await self._node.unless_failed(self.lifecycle.unfence(), "be unfenced")
        await listeners.serve_clients(self.dispatcher, self._node.config)

    async def leave(self) -> None:
        """Controlled shutdown: other brokers take over what this one leads."""
        try:
            await self.lifecycle.leave(_LEAVE_TIMEOUT_MS)
        except KafkaError as error:
            _log.warning("controlled shutdown failed: %s", error.detail)

    async def stop(self) -> None:
        await self.tasks.close()
        await self.transactions.stop()
        await self.markers.stop()
        await self.groups.stop()
        await self.topic_creation.close()
        await self.lifecycle.close()
        for channel in self._channels:
            channel.close()

    async def close(self) -> None:
        """The last step, when nothing follows the metadata any more: the logs are flushed."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        replicas = self.replicas
        if replicas.store.is_loaded:
            await replicas.stop(self.lifecycle.broker_epoch)
            if self.directories.has_own_metadata:
                self.directories.mark_metadata(self.lifecycle.broker_epoch)
            return
        if not replicas.store.has_begun_to_load:
            # The start failed: what the last clean shutdown recorded about the logs still holds.
            self.directories.restore_markers()
        # Otherwise nothing is known about the logs that were not opened: the next start checks all.
        await replicas.abandon()

    def _directory_failed(self, directory: "LogDirectory") -> None:
        if directory.meta.directory_id is not None:
            self.lifecycle.directory_failed(directory.meta.directory_id)
        if all(not each.is_online for each in self.directories.logs):
            self._node.fail("all log directories are offline")
