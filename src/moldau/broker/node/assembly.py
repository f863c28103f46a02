"""The parts of a running node, in the order of their dependencies."""

import logging
from typing import TYPE_CHECKING

from moldau.broker.cluster.directory_assignments import DirectoryAssignments
from moldau.broker.cluster.lifecycle import BrokerIdentity, BrokerLifecycle, register_controller
from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.cluster.peers import LocalPeers
from moldau.broker.cluster.producer_ids import ProducerIds
from moldau.broker.cluster.topic_creation import TopicCreation
from moldau.broker.controller.controller_channel import LocalControllerChannel
from moldau.broker.controller.controller_node import ControllerNode
from moldau.broker.controller_handlers.table import controller_table
from moldau.broker.coordinators.groups import GroupCoordinator
from moldau.broker.coordinators.markers import TransactionMarkers
from moldau.broker.coordinators.transactions import TransactionCoordinator
from moldau.broker.coordinators.verification import TransactionVerification
from moldau.broker.handlers.table import broker_table
from moldau.broker.node.settings import Settings
from moldau.broker.node.startup import Directories
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.quorum.snapshot_maker import SnapshotMaker
from moldau.broker.records.fetch_sessions import FetchSessions
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.server.context import BrokerServices
from moldau.broker.server.dispatch import Dispatcher
from moldau.core.metadata.image import MIGRATING_DIRECTORY
from moldau.net.chance import random_uuid
from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import BrokerId

if TYPE_CHECKING:
    from moldau.broker.node.node import Node
    from moldau.config.broker import BrokerConfig
    from moldau.net.clock import Timer
    from moldau.storage.directory.directory import LogDirectory

_log = logging.getLogger(__name__)

_LEAVE_TIMEOUT_MS = 30_000
_FIRST_RESERVE_MS = 1_000
_NEXT_RESERVE_MS = 60_000


class NodeParts:
    def __init__(self, node: "Node", directories: Directories) -> None:
        self._node = node
        self._is_loaded = False
        config, clock, chance = node.config, node.clock, node.host.chance
        self.directories = directories
        self._reserve_timer: Timer | None = None
        self.settings = Settings(config)
        self.feed = MetadataFeed()
        self.feed.subscribe(self.settings.apply)
        self.quorum = QuorumNode(directories.metadata, config, clock, node.fail, chance=chance)
        self.controller = ControllerNode(
            self.quorum,
            self.feed,
            self.settings,
            clock,
            cluster_id=directories.cluster_id,
            chance=chance,
        )
        self.quorum.add_listener(self.feed)
        self.quorum.add_listener(self.controller)
        self.snapshots = SnapshotMaker(self.quorum, config, clock)
        self.feed.subscribe(self.snapshots.image_changed)
        self.replicas = Replicas(
            directories.logs,
            node_id=BrokerId(config.node_id),
            clock=clock,
            settings=self.settings,
            unavailable=directories.unavailable,
            flush_backlog=node.flush_backlog,
            chance=chance,
        )
        node.turns.after_each = self._let_threads_run
        self.channel = LocalControllerChannel(
            self.controller, self.settings, self.replicas.wait_caught_up, clock
        )
        self.lifecycle = self._new_lifecycle()
        self.settings.subscribe(self.lifecycle.settings_changed)
        self.settings.check_with(node.listeners.check)
        self.replicas.on_directory_failure(self._directory_failed)
        self.topic_creation = TopicCreation(self.channel, self.settings)
        self.groups = GroupCoordinator(
            self.replicas, clock, self.settings, self.feed, chance=chance
        )
        self.tasks = Tasks(are_measured=True)
        self.peers = LocalPeers(config.node_id, self.settings, clock)
        self.producer_ids = ProducerIds(config.node_id, self.channel, self._broker_epoch)
        self.markers = TransactionMarkers(self.peers, self.feed, clock)
        self.transactions = TransactionCoordinator(
            self.replicas, clock, self.settings, self.feed, self.producer_ids, self.markers
        )
        assignments = DirectoryAssignments(
            config.node_id, self.channel, self._broker_epoch, self.tasks, clock
        )
        self.replicas.on_placement(assignments.placed)
        self.services = self._new_services()
        table, watch = broker_table(unstable=config.unstable_api_versions_enable), node.metrics.loop
        self.dispatcher = Dispatcher(self.services, table, watch)
        self.peers.serve_with(self.dispatcher)
        self.controller_dispatcher = Dispatcher(self.services, controller_table(), watch)

    def _let_threads_run(self) -> None:
        self.quorum.flush_rounds.let_threads_run()
        self.replicas.flush_rounds.let_threads_run()

    def _new_lifecycle(self) -> BrokerLifecycle:
        config, directories = self._node.config, self.directories
        identity = BrokerIdentity(
            node_id=config.node_id,
            cluster_id=directories.cluster_id,
            incarnation_id=random_uuid(self._node.host.chance),
            directories={
                str(each.path): each.meta.directory_id or MIGRATING_DIRECTORY
                for each in directories.logs
            },
            previous_epoch=directories.previous_epoch,
        )
        return BrokerLifecycle(identity, self.channel, self.feed, self.settings, self._node.clock)

    def _new_services(self) -> BrokerServices:
        config = self._node.config
        return BrokerServices(
            node_id=config.node_id,
            cluster_id=self.directories.cluster_id,
            clock=self._node.clock,
            settings=self.settings,
            metadata=self.feed,
            controller=self.channel,
            replicas=self.replicas,
            groups=self.groups,
            producer_ids=self.producer_ids,
            transactions=self.transactions,
            verification=TransactionVerification(
                self.peers, self.feed, self.settings, self._node.clock, self.tasks
            ),
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots, self._node.host.chance
            ),
            topic_creation=self.topic_creation,
            metrics=self._node.metrics,
            budget=self._node.budget,
            controller_node=self.controller,
            quorum=self.quorum,
        )

    def _settings_changed(self, _before: "BrokerConfig", after: "BrokerConfig") -> None:
        listeners = self._node.listeners
        listeners.follow(after)
        for listener in listeners.all:
            listener.read_limits()
        self._advertise()

    def _advertise(self) -> None:
        self.lifecycle.advertise(self._node.listeners.endpoints(self.settings.current))

    def _broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    async def start(self) -> None:
        self.directories.release_reserves()
        await self.quorum.start()
        await register_controller(
            self.channel, self._node.config, random_uuid(self._node.host.chance)
        )
        self._node.listeners.apply_stored_settings(self.settings.current)
        self._advertise()
        self.settings.subscribe(self._settings_changed)
        await self.lifecycle.start()
        self._is_loaded = True
        self.replicas.load(self.feed.image)
        if self._node.failure is not None:
            # The controller would never unfence a broker without a directory.
            raise MoldauError(self._node.failure)
        self.feed.subscribe(self.replicas.apply)
        self.groups.start()
        self.transactions.start()
        await self.lifecycle.unfence()
        # Not now: the start should not wait for it.
        self._take_reserves_in(_FIRST_RESERVE_MS)

    async def stop(self) -> None:
        if self._reserve_timer is not None:
            self._reserve_timer.cancel()
        self.directories.release_reserves()
        try:
            await self.lifecycle.leave(_LEAVE_TIMEOUT_MS)
        except KafkaError as error:
            _log.warning("controlled shutdown failed: %s", error.detail)
        await self.tasks.close()
        await self.transactions.stop()
        await self.markers.stop()
        await self.groups.stop()
        await self.topic_creation.close()
        await self.lifecycle.close()
        await self.snapshots.stop()
        self.controller.close()
        await self.quorum.stop()
        if self._is_loaded:
            await self.replicas.stop(self.lifecycle.broker_epoch)
            if self.directories.has_own_metadata:
                self.directories.mark_metadata(self.lifecycle.broker_epoch)
        else:
            # The start failed: what the last clean shutdown recorded about the logs still holds.
            self.directories.restore_markers()
            await self.replicas.abandon()
        self.directories.close()

    def _take_reserves_in(self, delay_ms: int) -> None:
        """Takes reserves of disk space now and then: deleting files on a full disk spends them."""

        def take() -> None:
            self.directories.take_reserves(self._node.config.moldau_reserve_bytes)
            self._take_reserves_in(_NEXT_RESERVE_MS)

        self._reserve_timer = self._node.clock.call_later(delay_ms, take)

    def _directory_failed(self, directory: "LogDirectory") -> None:
        if directory.meta.directory_id is not None:
            self.lifecycle.directory_failed(directory.meta.directory_id)
        if all(not each.is_online for each in self.directories.logs):
            self._node.fail("all log directories are offline")
