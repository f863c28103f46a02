"""A topic's settings in force on this node, from the topic's own and the node's."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.config.log import LogConfig
from moldau.config.topic import log_config
from moldau.core.controller.topics.topic_names import INTERNAL_TOPICS
from moldau.frozen import frozen

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig


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
