"""What the coordinator reads of the clients' own protocol: the topics that consumers subscribe to.
Everything else in it is between the members.
"""

from collections.abc import Iterable

from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.wire.codec import decode_prefix

CONSUMER_PROTOCOL = "consumer"
_VERSION_BYTES = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """None if any of them cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        if len(subscription) < _VERSION_BYTES:
            return None
        try:
            # Every version of it, known or not, starts like version 0.
            first_part, _ = decode_prefix(
                ConsumerProtocolSubscription, 0, subscription, _VERSION_BYTES
            )
        except MalformedRequestError:
            return None
        topics.update(first_part.topics)
    return frozenset(topics)
