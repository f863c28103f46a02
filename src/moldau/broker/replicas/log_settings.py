"""The settings of logs in force on this node, from the topics' own and the node's."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from moldau.config.log import LogConfig
from moldau.config.topic import log_config
from moldau.core.controller.topics.topic_names import INTERNAL_TOPICS
from moldau.frozen import frozen
from moldau.protocol.enums import ConfigResourceType
from moldau.storage.log.log import Log, LogOptions
from moldau.types import TopicPartition

if TYPE_CHECKING:
    from moldau.broker.server.context import ConfigHolder
    from moldau.config.broker import BrokerConfig
    from moldau.core.metadata.image import MetadataImage
    from moldau.storage.log.flushing import GroupFlusher


@frozen
class TopicSettings:
    log: LogConfig
    flush_policy: str


def topic_settings(
    config: "BrokerConfig", topic: str, overrides: Mapping[str, str]
) -> TopicSettings:
    """Coordinators' logs never have a weaker policy than `group`: their responses must not be
    undone.
    """
    policy = config.moldau_flush_policy
    if topic in INTERNAL_TOPICS and policy == "os":
        policy = "group"
    return TopicSettings(log_config(overrides, config), policy)


class LogSettings:
    def __init__(
        self,
        settings: "ConfigHolder",
        image_of: "Callable[[], MetadataImage]",
        flusher: "GroupFlusher",
        chance: Random,
    ) -> None:
        """`image_of` returns the current image."""
        self._settings = settings
        self._image_of = image_of
        self._flusher = flusher
        self._chance = chance
        self._defaults: dict[str, TopicSettings] = {}
        """Of topics without settings of their own, which are most of them."""
        self._defaults_config: BrokerConfig | None = None

    def of_topic(self, topic: str) -> TopicSettings:
        overrides = self._image_of().config_of(ConfigResourceType.TOPIC, topic)
        config = self._settings.current
        if overrides:
            return topic_settings(config, topic, overrides)
        if self._defaults_config is not config:
            self._defaults_config, self._defaults = config, {}
        kind = topic if topic in INTERNAL_TOPICS else ""
        if kind not in self._defaults:
            self._defaults[kind] = topic_settings(config, kind, overrides)
        return self._defaults[kind]

    def options_for(self, name: TopicPartition) -> LogOptions:
        settings = self.of_topic(name.topic)
        return LogOptions(
            config=settings.log,
            flush_policy=settings.flush_policy,
            flusher=self._flusher,
            syncs_later=True,
            jitter=lambda bound_ms: self._chance.randint(0, bound_ms),
            producer_id_expiration_ms=self._settings.current.producer_id_expiration_ms,
            verifies_transactions=self._settings.current.transaction_partition_verification_enable,
        )

    def change(self, log: Log, settings: TopicSettings) -> None:
        """Applies new settings to a running log."""
        log.config = settings.log
        log.flush_policy = settings.flush_policy
        current = self._settings.current
        log.producers.expiration_ms = current.producer_id_expiration_ms
        log.producers.verifies = current.transaction_partition_verification_enable
        log.mark_dirty()

    def is_cordoned(self, path: Path) -> bool:
        """No new replicas are placed in such a directory."""
        cordoned = self._settings.current.cordoned_log_dirs
        return "*" in cordoned or any(Path(each) == path for each in cordoned)

    def accepts_damage(self, log: Log) -> bool:
        """Whether the node continues without lost records: with the policy `os` a crash may lose
        acknowledged ones, as documented.
        """
        was_crash = log.directory.clean_stop_epoch is None
        is_documented_loss = log.flush_policy == "os" and was_crash
        return is_documented_loss or self._settings.current.moldau_accept_damage
