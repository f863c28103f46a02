"""What a node does with one topic: the settings in force, from the topic's own and the node's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.config.log import LogConfig

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class TopicSettings:
    log: LogConfig
    min_insync_replicas: int = 1
    flush_policy: str = "group"


def topic_settings(
    config: "BrokerConfig", topic: str, overrides: Mapping[str, str]
) -> TopicSettings:
    """Coordinators' logs are never below `group`: what they said must not be unsaid."""
    return TopicSettings(LogConfig())
