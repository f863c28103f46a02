"""The only part of the consumer protocol that the coordinator reads: the subscribed topics. The
rest is between the members.
"""

from collections.abc import Iterable

from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.wire.codec import decode_prefix

CONSUMER_PROTOCOL = "consumer"
_VERSION_BYTES = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """None if any subscription cannot be decoded."""
    topics: set[str] = set()
    for subscription in subscriptions:
        if len(subscription) < _VERSION_BYTES:
            return None
        try:
            # Every version, known or not, starts with the fields of version 0.
            first_part, _ = decode_prefix(
                ConsumerProtocolSubscription, 0, subscription, _VERSION_BYTES
            )
        except MalformedRequestError:
            return None
        topics.update(first_part.topics)
    return frozenset(topics)
