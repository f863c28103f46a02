"""The only part of the consumer protocol that the coordinator reads: the subscribed topics. The
rest is between the members.
"""

from collections.abc import Iterable

from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.wire.codec import decode_prefix

CONSUMER_PROTOCOL = "consumer"
NAMES_MAX = 10_000
BYTES_MAX = 8 << 20
_VERSION_BYTES = 2
_LENGTH_BYTES = 4
_LISTS_REMEMBERED = 4


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """None if any subscription cannot be decoded, or if decoding all of them would take more than
    a few milliseconds.
    """
    topics: set[str] = set()
    # Most members of a group have the same list of topics, which is decoded once.
    lists: tuple[bytes, ...] = ()
    names_left, bytes_left = NAMES_MAX, BYTES_MAX
    for subscription in subscriptions:
        bytes_left -= len(subscription)
        if len(subscription) < _VERSION_BYTES or bytes_left < 0:
            return None
        if lists and subscription.startswith(lists, _VERSION_BYTES):
            continue
        try:
            # Every version, known or not, starts with the fields of version 0.
            first_part, end = decode_prefix(
                ConsumerProtocolSubscription, 0, subscription, _VERSION_BYTES, budget=names_left
            )
        except MalformedRequestError:
            return None
        names_left -= len(first_part.topics)
        topics.update(first_part.topics)
        topics_end = end - _LENGTH_BYTES - len(first_part.user_data or b"")
        lists = (subscription[_VERSION_BYTES:topics_end], *lists[: _LISTS_REMEMBERED - 1])
    return frozenset(topics)
