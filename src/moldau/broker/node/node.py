"""One node: its life, its listeners, and its interface for the code that runs it. Its parts are in
node/assembly.py. Nothing here is global: one process can hold several nodes.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from moldau.broker.metrics.counters import Metrics
from moldau.broker.metrics.server import MetricsServer
from moldau.broker.node.assembly import NodeParts
from moldau.broker.node.host import Host
from moldau.broker.node.metadata_parts import MetadataParts
from moldau.broker.node.startup import (
    NodeOptions,
    check_can_run,
    connections_possible,
    is_loopback,
    open_directories,
    raise_descriptor_limit,
    with_ports,
)
from moldau.broker.replicas.flush_backlog import FlushBacklog
from moldau.broker.server.connection_limits import ConnectionLimits
from moldau.broker.server.context import BrokerServices, Handler
from moldau.broker.server.dispatch import Interceptor
from moldau.broker.server.listener import Listener, ListenerServices
from moldau.broker.server.listeners import Listeners
from moldau.broker.server.memory_budget import MemoryBudget
from moldau.broker.server.turns import Turns
from moldau.config.broker import BrokerConfig
from moldau.net.clock import Clock
from moldau.net.loop_holds import unwatch_loop, watch_loop
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.storage.directory.directory import LogDirectory

__all__ = ["Node", "NodeOptions"]

_log = logging.getLogger(__name__)

_LAG_SAMPLE_MS = 500


class Node:
    """Call `start`, then `stop`. A node that failed has its reason in `failure` and should be
    stopped.
    """

    def __init__(
        self,
        config: BrokerConfig,
        options: NodeOptions | None = None,
        *,
        clock: Clock | None = None,
        host: Host | None = None,
    ) -> None:
        if not __debug__:
            raise MoldauError("a node does not run under python -O: its assertions protect data")
        self.config = config
        self.options = options or NodeOptions()
        self.clock = clock or Clock()
        self.host = host or Host()
        self.metrics = Metrics()
        self.failure: str | None = None
        self._failed = asyncio.Event()
        self._tasks = Tasks()
        self._parts: NodeParts | None = None
        self.budget = MemoryBudget(
            lambda: self.current_config.moldau_inflight_bytes_max,
            lambda: self.current_config.socket_request_max_bytes,
        )
        self.turns = Turns()
        self.flush_backlog = FlushBacklog(self.clock)
        self.listeners = self._new_listeners()
        self._metrics_server: MetricsServer | None = None

    # Life

    async def start(self) -> None:
        """Returns when the node takes requests. Raises MoldauError in one clear line."""
        check_can_run(self.config, self.options)
        raise_descriptor_limit()
        self._sample_lag()
        try:
            ports = self._bind()
            self.config = with_ports(self.config, ports)
            directories = open_directories(
                self.host, self.config, self.options, self.clock.wall_ms()
            )
            self._parts = NodeParts(self, directories)
            await self._parts.start()
            await self._serve_metrics(self._parts)
        except BaseException:
            await self.stop()
            raise
        watch_loop(self.metrics.loop.record_callback)

    def _new_listeners(self) -> Listeners:
        services = ListenerServices(
            clock=self.clock,
            tasks=self._tasks,
            metrics=self.metrics,
            limits=ConnectionLimits(
                lambda: self.current_config, self.clock, connections_possible()
            ),
            budget=self.budget,
            turns=self.turns,
            flush_backlog=self.flush_backlog,
            config=lambda: self.current_config,
            network=self.host.network,
        )
        return Listeners(services, self.options)

    def _bind(self) -> dict[str, int]:
        config = self.config
        self.listeners.bind(config)
        if config.moldau_metrics_port >= 0:
            self._metrics_server = MetricsServer(
                config.moldau_metrics_host, config.moldau_metrics_port, self.clock
            )
        return self.ports

    async def _serve_metrics(self, parts: NodeParts) -> None:
        if self._metrics_server is not None:
            from moldau.broker.metrics.prometheus import render

            collector = parts.new_collector(self.listeners.all)
            await self._metrics_server.serve(lambda: render(collector))
            _log.info("metrics on %s", self._metrics_server.url)
            if not is_loopback(self.config.moldau_metrics_host):
                _log.warning("the metrics can be read from other machines without a password")

    async def stop(self) -> None:
        """Flushes everything to the disk and releases the locks. May be called twice."""
        unwatch_loop(self.metrics.loop.record_callback)
        parts = self._parts
        if parts is not None:
            # Other nodes take over while this one still serves.
            await parts.leave()
        self.listeners.stop_accepting_clients(self.config)
        if self._metrics_server is not None:
            self._metrics_server.close()
        self._parts = None
        if parts is not None:
            # The quorum resigns, and may still be asked by other controllers.
            await parts.stop()
        self.listeners.close()
        await self._tasks.close()
        self.clock.close()

    def fail(self, reason: str) -> None:
        """Declares that this node cannot continue."""
        if self.failure is None:
            _log.error("stopping the node: %s", reason)
            self.failure = reason
            self._failed.set()

    async def wait_until_failed_or(self, stop: asyncio.Event) -> None:
        waits = [self._tasks.start(event.wait(), "wait-for-end") for event in (stop, self._failed)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)

    async def unless_failed(self, waiting: Coroutine[Any, Any, None], name: str) -> None:
        """Waits, but not longer than until the node fails. Raises MoldauError with the reason."""
        task = self._tasks.start(waiting, name, expects=(MoldauError,))
        failed = self._tasks.start(self._failed.wait(), f"{name}, unless the node fails")
        try:
            await asyncio.wait([task, failed], return_when=asyncio.FIRST_COMPLETED)
            if self.failure is not None:
                raise MoldauError(self.failure)
            await task
        finally:
            failed.cancel()
            task.cancel()

    def _sample_lag(self) -> None:
        """A late timer shows how long the event loop was blocked."""
        due_ms = self.clock.mono_ms() + _LAG_SAMPLE_MS

        def measure() -> None:
            lag_ms = max(self.clock.mono_ms() - due_ms, 0)
            self.metrics.loop_lag_ms = lag_ms
            self.metrics.loop_lag_max_ms = max(self.metrics.loop_lag_max_ms, lag_ms)
            self.metrics.loop.record_lag(lag_ms)
            self._sample_lag()

        self.clock.call_later(_LAG_SAMPLE_MS, measure)

    # For the code that runs the node

    @property
    def current_config(self) -> BrokerConfig:
        return self.config if self._parts is None else self._parts.settings.current

    @property
    def metadata(self) -> MetadataParts:
        """The parts that follow the cluster's metadata. Raises MoldauError if the node does not
        run.
        """
        return self._running().metadata

    @property
    def services(self) -> BrokerServices:
        return self._running().broker.services

    @property
    def ports(self) -> dict[str, int]:
        """Listener name -> bound port."""
        return {listener.name: listener.port for listener in self.listeners.all}

    @property
    def directories(self) -> list[LogDirectory]:
        """The log directories that could be opened."""
        return self._running().directories.logs

    @property
    def client_port(self) -> int:
        return self._client_listener().port

    @property
    def address(self) -> str:
        """Of the first listener for clients, or else of the first for other controllers."""
        names = self.config.controller_names
        by_kind = sorted(self.listeners.all, key=lambda listener: listener.name in names)
        listener = by_kind[0]
        host = listener.host or "127.0.0.1"
        return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"

    @property
    def metrics_port(self) -> int | None:
        return None if self._metrics_server is None else self._metrics_server.port

    @property
    def description(self) -> str:
        parts = self._running()
        data = ", ".join(str(each.path) for each in parts.directories.logs)
        cluster_id = parts.directories.cluster_id
        roles = self.config.process_roles
        kind = (
            f"{roles[0]} {self.config.node_id}"
            if len(roles) == 1
            else f"node {self.config.node_id}"
        )
        return f"{kind}, cluster {cluster_id}, data in {data}"

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Raises KafkaError unless the topic is new and was created."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        response = await self._running().broker.channel.send(CreateTopicsRequest(topics=[topic]))
        assert isinstance(response, CreateTopicsResponse)
        for made in response.topics:
            if made.error_code:
                raise KafkaError(ErrorCode(made.error_code), made.error_message or name)

    def handler_of(self, api_key: ApiKey) -> Handler:
        return self._running().broker.dispatcher.table.handler(api_key)

    def intercept(self, interceptor: Interceptor | None) -> None:
        """For tests: sees every client request first and may supply its response."""
        self._running().broker.dispatcher.interceptor = interceptor

    def drop_connections(self) -> int:
        """Closes all connections of clients and returns their number."""
        names = self.config.controller_names
        return sum(
            listener.drop_connections()
            for listener in self.listeners.all
            if listener.name not in names
        )

    def _client_listener(self) -> Listener:
        names = self.config.controller_names
        for listener in self.listeners.all:
            if listener.name not in names:
                return listener
        raise MoldauError(f"node {self.config.node_id} is not a broker: it has no clients")

    def _running(self) -> NodeParts:
        if self._parts is None:
            raise MoldauError("the node is not running")
        return self._parts
