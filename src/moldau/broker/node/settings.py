"""The settings that are in force on this node: its properties, overridden by what the metadata log
stores for all brokers and for this one.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from moldau.config.broker import BrokerConfig
from moldau.config.dynamic import check_broker_change, layered_config, usable
from moldau.core.metadata.image import ConfigResource
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.unexpected import Attempts

if TYPE_CHECKING:
    from moldau.core.metadata.delta import MetadataDelta
    from moldau.core.metadata.image import MetadataImage

_log = logging.getLogger(__name__)
_ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")

Listener = Callable[[BrokerConfig, BrokerConfig], None]
"""Called with the settings before and after."""
Check = Callable[[BrokerConfig], None]
"""Called with the requested settings. Raises MoldauError if this node cannot use them."""


class Settings:
    """Subscribe `apply` to the metadata feed."""

    def __init__(self, static: BrokerConfig) -> None:
        self._current = static
        self._own_resource = ConfigResource(ConfigResourceType.BROKER, str(static.node_id))
        self._listeners: list[Listener] = []
        self._checks: list[Check] = []
        if static.without_effect:
            _log.info("these settings have no effect yet: %s", ", ".join(static.without_effect))

    @property
    def current(self) -> BrokerConfig:
        return self._current

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def check_with(self, check: Check) -> None:
        self._checks.append(check)

    def apply(self, delta: "MetadataDelta", image: "MetadataImage") -> None:
        """Unusable settings are logged, and the ones in force stay. Raises the first error of a
        listener, after all others are notified.
        """
        if not delta.changed_configs & {_ALL_BROKERS, self._own_resource}:
            return
        layers = self._current.layers._replace(
            cluster=_usable_part(image.configs.get(_ALL_BROKERS, {}), for_all=True),
            own=_usable_part(image.configs.get(self._own_resource, {}), for_all=False),
        )
        try:
            config = layered_config(layers)
        except KafkaError as error:
            _log.error("settings changed at run time are rejected: %s", error.detail)
            return
        before, self._current = self._current, config
        # Settings of a single listener are only in `given`.
        if config != before or config.given != before.given:
            attempts = Attempts(_log, "a listener to settings")
            for listener in self._listeners:
                attempts.make(listener, before, config)
            attempts.end()

    def check_change(self, resource_name: str, properties: Mapping[str, str]) -> None:
        """Raises INVALID_REQUEST if these cannot become the run-time settings of all brokers (empty
        name) or of this one.
        """
        for_all = resource_name == ""
        layers = self._current.layers
        layers = layers._replace(cluster=properties) if for_all else layers._replace(own=properties)
        config = check_broker_change(layers, self._current, for_all=for_all)
        try:
            for check in self._checks:
                check(config)
        except KafkaError:
            raise
        except MoldauError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _usable_part(properties: Mapping[str, str], *, for_all: bool) -> dict[str, str]:
    good, bad = usable(properties, for_all=for_all)
    for complaint in bad.values():
        _log.warning("a setting changed at run time is ignored: %s", complaint)
    return good
