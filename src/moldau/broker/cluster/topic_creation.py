"""Automatic creation of topics: those in clients' metadata requests, and the internal ones at their
first use. Requests that need the same topic at the same time share its creation.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from moldau.broker.server.context import ConfigHolder, ForwardingChannel, Peer
from moldau.broker.server.log_texts import few_of, short
from moldau.config.broker import BrokerConfig
from moldau.core.controller.topics.topic_names import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    is_valid_name,
)
from moldau.net.slices import slices_of
from moldau.net.tasks import Tasks
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_log = logging.getLogger(__name__)

CREATIONS_AT_ONCE_MAX = 10_000
_LOGGED_MAX = 1_000
_REASON_CHARS_MAX = 400
_DEFAULT = -1
_EXISTS = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}

Outcomes = dict[str, ErrorCode]


class TopicCreation:
    def __init__(self, channel: ForwardingChannel, settings: ConfigHolder) -> None:
        self._channel = channel
        self._settings = settings
        self._tasks = Tasks(are_measured=True)
        self._running: dict[str, asyncio.Task[Outcomes]] = {}
        self._logged: dict[str, ErrorCode] = {}

    async def ensure(self, names: Iterable[str], client: Peer | None = None) -> Outcomes:
        """Creates missing topics, on behalf of the client if there is one. Returns an error code
        for each name once the topic exists on this broker (NONE) or its creation has failed.
        Invalid names are not requested.
        """
        distinct = list(dict.fromkeys(names))
        are_valid = await slices_of(is_valid_name, distinct)
        outcomes = {
            name: ErrorCode.INVALID_TOPIC_EXCEPTION
            for name, is_valid in zip(distinct, are_valid, strict=True)
            if not is_valid
        }
        fresh = [name for name in distinct if name not in outcomes and name not in self._running]
        if len(self._running) + len(fresh) > CREATIONS_AT_ONCE_MAX:
            return dict.fromkeys(distinct, ErrorCode.POLICY_VIOLATION)
        if fresh:
            task = self._tasks.start(self._create(fresh, client), "create-topics")
            self._running |= dict.fromkeys(fresh, task)
        shared = {name: self._running[name] for name in distinct if name not in outcomes}
        if shared:
            await asyncio.wait(set(shared.values()))
        for name, task in shared.items():
            made: Mapping[str, ErrorCode] = {} if task.cancelled() else task.result()
            outcomes[name] = made.get(name, ErrorCode.REQUEST_TIMED_OUT)
        return outcomes

    async def close(self) -> None:
        await self._tasks.close()

    def _is_new_error(self, name: str, code: ErrorCode) -> bool:
        """Whether this error of the topic is not logged yet: clients retry again and again."""
        if len(self._logged) > _LOGGED_MAX:
            self._logged.clear()
        is_known = self._logged.get(name) is code
        self._logged[name] = code
        return not is_known

    async def _create(self, names: list[str], client: Peer | None) -> Outcomes:
        config = self._settings.current
        request = CreateTopicsRequest(
            topics=[_creatable(config, name) for name in names],
            timeout_ms=config.request_timeout_ms,
        )
        try:
            if client is None:
                response = await self._channel.send(request)
            else:
                response = await self._channel.forward(request, None, client)
        except KafkaError as error:
            _log.warning("topics could not be created: %s: %s", few_of(names), error)
            return dict.fromkeys(names, error.code)
        finally:
            for name in names:
                del self._running[name]
        assert isinstance(response, CreateTopicsResponse)
        factors = {topic.name: topic.replication_factor for topic in request.topics}
        outcomes = {}
        news: dict[tuple[ErrorCode, str | None], list[CreatableTopicResult]] = {}
        for topic in response.topics:
            code = error_code(topic.error_code)
            outcomes[topic.name] = ErrorCode.NONE if code in _EXISTS else code
            if code not in _EXISTS and self._is_new_error(topic.name, code):
                setting = _REPLICATION_FACTORS.get(topic.name)
                news.setdefault((code, setting), []).append(topic)
        # One line for each error code and internal topic, however many topics failed.
        for failed in news.values():
            few = few_of([topic.name for topic in failed])
            reason = _reason(failed[0], factors.get(failed[0].name, _DEFAULT))
            _log.warning("topics could not be created: %s: %s", few, reason)
        return outcomes


def _reason(topic: CreatableTopicResult, factor: int) -> str:
    code = error_code(topic.error_code)
    reason = short(str(KafkaError(code, topic.error_message or "")), _REASON_CHARS_MAX)
    setting = _REPLICATION_FACTORS.get(topic.name)
    if setting is None or factor <= 1 or code is not ErrorCode.INVALID_REPLICATION_FACTOR:
        return reason
    return f"{reason} A cluster of one node needs {setting}=1."


def _creatable(config: BrokerConfig, name: str) -> CreatableTopic:
    internal = _INTERNAL.get(name)
    if internal is not None:
        return internal(config)
    # Settings that this node does not have are left to the controller, which may have them.
    return CreatableTopic(
        name=name,
        num_partitions=config.num_partitions if "num.partitions" in config.given else _DEFAULT,
        replication_factor=(
            config.default_replication_factor
            if "default.replication.factor" in config.given
            else _DEFAULT
        ),
    )


def _consumer_offsets(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        name=CONSUMER_OFFSETS,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        configs=_configs(
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            }
        ),
    )


def _transaction_state(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        name=TRANSACTION_STATE,
        num_partitions=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor,
        configs=_configs(
            {
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            }
        ),
    )


def _share_group_state(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        name=SHARE_GROUP_STATE,
        num_partitions=config.share_coordinator_state_topic_num_partitions,
        replication_factor=config.share_coordinator_state_topic_replication_factor,
        configs=_configs(
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
            }
        ),
    )


def _configs(values: Mapping[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]


_INTERNAL = {
    CONSUMER_OFFSETS: _consumer_offsets,
    TRANSACTION_STATE: _transaction_state,
    SHARE_GROUP_STATE: _share_group_state,
}
_REPLICATION_FACTORS = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.replication.factor",
}
