"""Changes of topics, of their settings and of logs' starts while nodes are killed. Requests are
sent ahead of their responses: a change with a response before the kill must hold, one without
may have happened.
"""

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from support.wire_client import HungUpError, WireClient
from system.node.kill_history import Watermarks
from system.node.questions import (
    LATEST,
    Place,
    config_of,
    create_topics_request,
    delete_records_request,
    delete_topics_request,
    offsets_at,
    set_config_request,
    topics_of,
)

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.wire.schema import Message

_SETTING = "retention.ms"
_TOPICS_MAX = 30

Outcome = Callable[[Any], None]


class _Asked(NamedTuple):
    request: Message
    answered: Outcome


class _Topic:
    """The possible states of a topic: several as long as a response is missing."""

    def __init__(self, partitions: int, setting: str) -> None:
        self.partitions = partitions
        self.may_be_there = {True, False}
        self.settings = {setting}
        self.is_busy = True
        """The response to a creation or deletion is still missing."""


class Changes:
    """The requests of one connection after the other."""

    def __init__(self, trimmed: Place, watermarks: Watermarks, chance: random.Random) -> None:
        self._trimmed = trimmed
        self._watermarks = watermarks
        self._chance = chance
        self._topics: dict[str, _Topic] = {}
        self._made = 0
        self._pending: deque[_Asked] = deque()
        self.answered_count = 0

    def begin(self, client: WireClient, count: int) -> None:
        """Sends `count` changes; the node makes them one after the other."""
        for _ in range(count):
            requested = self._chance.choice(
                [self._create, self._create, self._delete, self._set, self._set, self._trim]
            )()
            if requested is not None:
                client.send(requested.request)
                self._pending.append(requested)

    def collect(self, client: WireClient, count: int) -> None:
        """Waits for `count` responses."""
        for _ in range(min(count, len(self._pending))):
            request = self._pending[0].request
            _, answer = client.receive(ApiKey(request.API_KEY), request.VERSIONS[1])
            self._pending.popleft().answered(answer)
            self.answered_count += 1

    def collect_rest(self, client: WireClient) -> None:
        """The responses before the node was gone."""
        with suppress(HungUpError):
            self.collect(client, len(self._pending))
        self._pending.clear()

    def check(self, client: WireClient) -> None:
        """The current state is final: no doubts remain. And the topic is usable."""
        found = topics_of(client)
        for name, topic in list(self._topics.items()):
            is_there = name in found
            assert is_there in topic.may_be_there, f"{name}: {is_there=}, {topic.may_be_there}"
            topic.may_be_there = {is_there}
            topic.is_busy = False
            if not is_there:
                del self._topics[name]
                continue
            assert found[name] == topic.partitions, f"{name} has {found[name]} partitions"
            value = config_of(client, name, _SETTING)
            assert value in topic.settings, f"{name}: {value} is none of {topic.settings}"
            topic.settings = {str(value)}
        places = [(n, i) for n, t in self._topics.items() for i in range(t.partitions)]
        offsets_at(client, places, LATEST)

    # Requests

    def _create(self) -> _Asked | None:
        if len(self._topics) >= _TOPICS_MAX:
            return self._delete()
        self._made += 1
        name = f"made-{self._made}"
        topic = self._topics[name] = _Topic(self._chance.randint(1, 3), self._new_setting())
        (setting,) = topic.settings

        def answered(answer: Any) -> None:
            assert answer.topics[0].error_code == 0, answer
            topic.may_be_there = {True}
            topic.is_busy = False

        return _Asked(
            create_topics_request({name: topic.partitions}, {_SETTING: setting}), answered
        )

    def _delete(self) -> _Asked | None:
        name = self._free_topic()
        if name is None:
            return None
        topic = self._topics[name]
        topic.may_be_there, topic.is_busy = {True, False}, True

        def answered(answer: Any) -> None:
            assert answer.responses[0].error_code == 0, answer
            topic.may_be_there = {False}

        return _Asked(delete_topics_request(name), answered)

    def _set(self) -> _Asked | None:
        name = self._free_topic()
        if name is None:
            return None
        topic, setting = self._topics[name], self._new_setting()
        before = set(topic.settings)
        topic.settings.add(setting)

        def answered(answer: Any) -> None:
            assert answer.responses[0].error_code == 0, answer
            # Later ones are pending after it.
            topic.settings -= before

        return _Asked(set_config_request(name, _SETTING, setting), answered)

    def _trim(self) -> _Asked | None:
        start = self._watermarks.starts[self._trimmed]
        end = self._watermarks.ends[self._trimmed]
        offset = self._chance.randint(start, end)

        def answered(answer: Any) -> None:
            (result,) = answer.topics[0].partitions
            # Retention may have been faster.
            assert result.error_code in {0, 1}, answer
            if result.error_code == 0:
                low = max(result.low_watermark, self._watermarks.starts[self._trimmed])
                self._watermarks.starts[self._trimmed] = low

        return _Asked(delete_records_request(self._trimmed, offset), answered)

    def _free_topic(self) -> str | None:
        free = [name for name, topic in self._topics.items() if not topic.is_busy]
        return self._chance.choice(free) if free else None

    def _new_setting(self) -> str:
        return str(self._chance.randint(10**8, 10**9))
