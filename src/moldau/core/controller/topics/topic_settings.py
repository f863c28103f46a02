"""The two topic settings that affect leadership. A topic without its own value has the node's."""

from moldau.core.controller.decision_context import DecisionContext
from moldau.core.metadata.image import TopicImage
from moldau.protocol.enums import ConfigResourceType

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


def effective_min_isr(context: DecisionContext, topic: TopicImage) -> int:
    """At most the number of replicas."""
    text = _own_value(context, topic.name, MIN_INSYNC_REPLICAS)
    configured = context.config.min_insync_replicas if text is None else int(text)
    return min(configured, len(topic.partitions[0].replicas))


def is_unclean_election_allowed(context: DecisionContext, topic_name: str) -> bool:
    text = _own_value(context, topic_name, UNCLEAN_LEADER_ELECTION)
    if text is None:
        return context.config.unclean_leader_election_enable
    return text.strip().lower() == "true"


def _own_value(context: DecisionContext, topic_name: str, name: str) -> str | None:
    return context.image.config_of(ConfigResourceType.TOPIC, topic_name).get(name)
