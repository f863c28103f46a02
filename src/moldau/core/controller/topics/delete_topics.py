"""DeleteTopics, by name or by id. Internal topics are refused. Kafka deletes them, which wipes the
offsets of all groups and the state of all transactions.
"""

from collections import Counter
from collections.abc import Iterator

from moldau.core.controller.decision_context import (
    RECORDS_PER_REQUEST_MAX,
    DecisionContext,
    too_many_records,
)
from moldau.core.controller.topics.topic_names import is_internal
from moldau.core.decision import Decision
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import RemoveTopicRecord
from moldau.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.protocol.wire.schema import Message
from moldau.types import ZERO_UUID, Uuid

_DISABLED_KNOWN_FROM = 3
"""The first version whose clients know the error code TOPIC_DELETION_DISABLED."""


def decide_delete_topics(
    context: DecisionContext, request: DeleteTopicsRequest, version: int
) -> Decision[Message, DeleteTopicsResponse]:
    if not context.config.delete_topic_enable:
        raise _disabled(version)
    deletion = _Deletion(context)
    requested = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    deletion.refuse_unclear(requested)
    deletion.find_ids([each.topic_id for each in requested if _is_id(each)])
    deletion.find_names([each.name or "" for each in requested if _is_name(each)])
    records = list(deletion.records())
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    response = DeleteTopicsResponse(responses=deletion.results)
    return Decision(response, records, frees_disk=True)


def _disabled(version: int) -> KafkaError:
    if version < _DISABLED_KNOWN_FROM:
        detail = "This version does not support topic deletion."
        return KafkaError(ErrorCode.INVALID_REQUEST, detail)
    return KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")


def _is_name(topic: DeleteTopicState) -> bool:
    return topic.name is not None and topic.topic_id == ZERO_UUID


def _is_id(topic: DeleteTopicState) -> bool:
    return topic.name is None and topic.topic_id != ZERO_UUID


class _Deletion:
    def __init__(self, context: DecisionContext) -> None:
        self.results: list[DeletableTopicResult] = []
        self._image = context.image
        self._deleted: dict[Uuid, str] = {}
        self._ambiguous: set[Uuid] = set()

    def refuse_unclear(self, requested: list[DeleteTopicState]) -> None:
        for each in requested:
            if each.name is None and each.topic_id == ZERO_UUID:
                self._refuse(None, ZERO_UUID, "Neither topic name nor id were specified.")
            elif each.name is not None and each.topic_id != ZERO_UUID:
                detail = "You may not specify both topic name and topic id."
                self._refuse(each.name, each.topic_id, detail)

    def find_ids(self, ids: list[Uuid]) -> None:
        for topic_id, times in Counter(ids).items():
            topic = self._image.topics_by_id.get(topic_id)
            if times > 1:
                self._ambiguous.add(topic_id)
                self._refuse(None, topic_id, "Duplicate topic id.")
            elif topic is None:
                detail = "This server does not host this topic ID."
                self._answer(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, detail)
            else:
                self._deleted[topic_id] = topic.name

    def find_names(self, names: list[str]) -> None:
        for name, times in Counter(names).items():
            topic = self._image.topics.get(name)
            if times > 1:
                self._refuse(name, ZERO_UUID, "Duplicate topic name.")
            elif topic is None:
                detail = "This server does not host this topic-partition."
                self._answer(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
            elif topic.topic_id in self._ambiguous or topic.topic_id in self._deleted:
                self._deleted.pop(topic.topic_id, None)
                detail = "The provided topic name maps to an ID that was already supplied."
                self._refuse(name, topic.topic_id, detail)
            else:
                self._deleted[topic.topic_id] = name

    def records(self) -> Iterator[Message]:
        for topic_id, name in self._deleted.items():
            if is_internal(name):
                detail = f"Topic '{name}' is internal and cannot be deleted."
                self._answer(name, topic_id, ErrorCode.INVALID_TOPIC_EXCEPTION, detail)
            else:
                self._answer(name, topic_id, ErrorCode.NONE, None)
                yield RemoveTopicRecord(topic_id=topic_id)

    def _refuse(self, name: str | None, topic_id: Uuid, detail: str) -> None:
        self._answer(name, topic_id, ErrorCode.INVALID_REQUEST, detail)

    def _answer(
        self, name: str | None, topic_id: Uuid, code: ErrorCode, detail: str | None
    ) -> None:
        self.results.append(
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=detail
            )
        )
