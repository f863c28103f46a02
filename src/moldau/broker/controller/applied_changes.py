"""Whether this broker's metadata includes a change that the controller has made. Its responses
contain no offsets, so this looks for the topics themselves.
"""

from collections.abc import Callable
from typing import TypeAlias

from moldau.core.metadata.image import MetadataImage
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from moldau.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_topics import DeleteTopicsResponse
from moldau.protocol.wire.schema import Message
from moldau.types import ZERO_UUID, Uuid

IsApplied: TypeAlias = Callable[[MetadataImage], bool]


def applied(request: Message, response: Message) -> IsApplied | None:
    """Tells whether an image includes the change; None if there is nothing to look for."""
    match request, response:
        case CreateTopicsRequest(), CreateTopicsResponse() if not request.validate_only:
            made = {each.name: each.topic_id for each in response.topics if not each.error_code}
            return lambda image: all(_exists(image, name, made[name]) for name in made)
        case CreatePartitionsRequest(), CreatePartitionsResponse() if not request.validate_only:
            wanted = {each.name: each.count for each in request.topics}
            grown = [each.name for each in response.results if not each.error_code]
            return lambda image: all(_has(image, name, wanted.get(name, 0)) for name in grown)
        case _, DeleteTopicsResponse():
            gone = {each.name: each.topic_id for each in response.responses if not each.error_code}
            return lambda image: (
                not any(name is not None and _exists(image, name, gone[name]) for name in gone)
            )
        case _:
            return None


def _exists(image: MetadataImage, name: str, topic_id: Uuid) -> bool:
    topic = image.topic(name)
    # Old versions of the response have no id.
    return topic is not None and topic_id in {topic.topic_id, ZERO_UUID}


def _has(image: MetadataImage, name: str, count: int) -> bool:
    """A topic that was deleted meanwhile is not waited for."""
    topic = image.topic(name)
    return topic is None or len(topic.partitions) >= count
