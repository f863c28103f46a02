"""All listeners of a node: those it starts with, and those added and removed by the setting
`listeners` while it runs. A change that fails leaves the listeners as they were.
"""

import logging
from typing import TYPE_CHECKING

from moldau.broker.node.startup import NodeOptions, check_listener, reachable_host
from moldau.broker.server.listener import Listener, ListenerServices
from moldau.config.broker import BrokerConfig
from moldau.config.listeners import Listener as ConfiguredListener
from moldau.core.metadata.image import Endpoint
from moldau.protocol.errors import MoldauError

if TYPE_CHECKING:
    from moldau.broker.server.dispatch import Dispatcher

_log = logging.getLogger(__name__)


class Listeners:
    def __init__(self, services: ListenerServices, options: NodeOptions) -> None:
        self.all: list[Listener] = []
        self._services = services
        self._options = options
        self._dispatcher: Dispatcher | None = None
        """Serves clients, once they are served."""

    # Start and stop

    def bind(self, config: BrokerConfig) -> None:
        """Binds the listeners that the node is started with."""
        for configured in config.bound_listeners:
            self.all.append(
                self._bound(configured, is_privileged=_is_for_nodes(configured, config))
            )

    def apply_stored_settings(self, config: BrokerConfig) -> None:
        """Applies what an earlier run changed. No client is served yet, so that an address may
        change, too.
        """
        addresses = {listener.name: listener for listener in config.broker_listeners}
        for listener in list(self.all):
            configured = addresses.get(listener.name)
            if (
                configured is not None
                and not _is_at(listener, configured)
                and self._add(configured)
            ):
                self._remove(listener)
        self.follow(config)

    async def serve_controllers(self, dispatcher: "Dispatcher", config: BrokerConfig) -> None:
        """Opens the controller listeners."""
        for listener in list(self.all):
            if listener.name in config.controller_names:
                await listener.serve(dispatcher)

    async def serve_clients(self, dispatcher: "Dispatcher", config: BrokerConfig) -> None:
        """Opens all other listeners."""
        self._dispatcher = dispatcher
        for listener in list(self.all):
            if listener.name not in config.controller_names:
                await listener.serve(dispatcher)

    def stop_accepting_clients(self, config: BrokerConfig) -> None:
        """Controllers may still connect."""
        for listener in self.all:
            if listener.name not in config.controller_names:
                listener.stop_accepting()

    def close(self) -> None:
        for listener in self.all:
            listener.stop_accepting()
            listener.drop_connections()

    # Changes

    def check(self, config: BrokerConfig) -> None:
        """Raises MoldauError if a new listener cannot be bound. One that was configured before and
        is missing does not refuse other changes.
        """
        in_force = self._services.config().broker_listeners
        for configured in self._new(config):
            if configured in in_force:
                continue
            check_listener(configured, self._options)
            self._bound(configured, is_privileged=False).stop_accepting()

    def follow(self, config: BrokerConfig) -> None:
        """Controllers' listeners stay as they are. A listener whose address changed keeps its old
        one until the next start, as in Kafka.
        """
        configured = {listener.name: listener for listener in config.bound_listeners}
        for listener in list(self.all):
            if listener.name in config.controller_names:
                continue
            if listener.name not in configured:
                _log.info("listener %s is removed", listener.name)
                self._remove(listener)
            elif not _is_at(listener, configured[listener.name]):
                _log.warning(
                    "the new address of listener %s takes effect at the next start", listener.name
                )
        for new in self._new(config):
            self._add(new)

    def endpoints(self, config: BrokerConfig) -> list[Endpoint]:
        """The advertised endpoints of this node."""
        bound = {listener.name: listener for listener in self.all}
        endpoints = []
        for advertised in config.advertised_broker_listeners:
            listener = bound.get(advertised.name)
            if listener is None:
                continue
            host, port = advertised.host, advertised.port or listener.port
            if config.advertised_listeners is None:
                host, port = listener.host, listener.port
            host = reachable_host(host, self._services.network)
            endpoints.append(Endpoint(advertised.name, host, port, advertised.security_protocol))
        return endpoints

    def _new(self, config: BrokerConfig) -> list[ConfiguredListener]:
        names = {listener.name for listener in self.all}
        return [listener for listener in config.broker_listeners if listener.name not in names]

    def _bound(self, configured: ConfiguredListener, *, is_privileged: bool) -> Listener:
        listener = Listener(
            configured.name,
            configured.host,
            configured.port,
            self._services,
            is_privileged=is_privileged,
        )
        listener.bind()
        return listener

    def _add(self, configured: ConfiguredListener) -> bool:
        """Whether it is bound: clients that connect from now on are served."""
        is_privileged = _is_for_nodes(configured, self._services.config())
        try:
            check_listener(configured, self._options)
            listener = self._bound(configured, is_privileged=is_privileged)
        except MoldauError as error:
            _log.error("a listener from the run-time settings could not be opened: %s", error)
            return False
        self.all.append(listener)
        _log.info("listener %s is at %s:%d", configured.name, listener.host or "*", listener.port)
        if self._dispatcher is not None:
            listener.listen()
            serving = listener.serve(self._dispatcher)
            _ = self._services.tasks.start(serving, f"serve-{configured.name}")
        return True

    def _remove(self, listener: Listener) -> None:
        self.all.remove(listener)
        listener.retire()


def _is_for_nodes(listener: ConfiguredListener, config: BrokerConfig) -> bool:
    """Whether only nodes use it. Without a listener of their own, brokers use the clients'."""
    has_own = len(config.broker_listeners) > 1 and listener.name == config.inter_broker_name
    return listener.name in config.controller_names or (config.is_broker and has_own)


def _is_at(listener: Listener, configured: ConfiguredListener) -> bool:
    return listener.host == configured.host and configured.port in {0, listener.port}
