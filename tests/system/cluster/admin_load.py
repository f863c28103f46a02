"""Concurrent admin calls while controllers die. Each call is recorded with the time of its
invocation and of its response, and with its outcome, which is unknown if the connection breaks or
the response does not tell.
"""

import itertools
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from support.linearizability import NEVER, UNKNOWN, Operation
from support.running_cluster import RunningCluster
from support.waiting import pause
from support.wire_client import WireClient
from system.cluster.admin_model import (
    DONE,
    EXISTS,
    MISSING,
    NOT_AN_INCREASE,
    Call,
    Configure,
    CountPartitions,
    Create,
    Delete,
    Grow,
    ReadSetting,
)
from system.node.questions import create_topics_request, delete_topics_request, set_config_request

from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.wire.schema import Message

SETTING = "retention.ms"
PARTITIONS_MAX = 6
_TIMEOUT_MS = 30_000
_JOIN_S = 60.0
_OUTCOMES: dict[ErrorCode, str | None] = {
    ErrorCode.NONE: DONE,
    ErrorCode.TOPIC_ALREADY_EXISTS: EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: MISSING,
    ErrorCode.INVALID_PARTITIONS: NOT_AN_INCREASE,
    # The leadership may have ended after the append.
    ErrorCode.NOT_CONTROLLER: UNKNOWN,
    ErrorCode.REQUEST_TIMED_OUT: UNKNOWN,
}


class Quorum(NamedTuple):
    leader_id: int
    epoch: int
    high_watermark: int
    ends: dict[int, int]
    """Log end offsets of the voters."""
    observers: list[int]


def led_quorum(wire: WireClient) -> Quorum | None:
    """As the active controller describes it; None at any other controller."""
    partitions = [DescribeQuorumRequestPartitionData(partition_index=0)]
    topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=partitions)
    (answer,) = wire.ask(DescribeQuorumRequest(topics=[topic]), 2).topics[0].partitions
    if answer.error_code:
        return None
    return Quorum(
        answer.leader_id,
        answer.leader_epoch,
        answer.high_watermark,
        {each.replica_id: each.log_end_offset for each in answer.current_voters},
        [each.replica_id for each in answer.observers],
    )


def active_controller(cluster: RunningCluster) -> Quorum | None:
    """The quorum as the active controller describes it; None if there is none at the moment."""
    for node in cluster.controllers:
        if node.is_running:
            with suppress(OSError), WireClient(node.controller_address) as wire:
                found = led_quorum(wire)
                if found is not None and found.high_watermark >= 0:
                    return found
    return None


class History:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: list[Operation] = []
        self.problems: list[str] = []
        self._names: list[str] = []
        self._numbers = itertools.count(1_000_000)

    @property
    def operations(self) -> list[Operation]:
        with self._lock:
            return list(self._operations)

    @property
    def answered(self) -> int:
        with self._lock:
            return sum(each.outcome is not UNKNOWN for each in self._operations)

    def outcomes(self) -> Counter[str]:
        kinds: Counter[str] = Counter()
        for each in self.operations:
            outcome = "unknown" if each.outcome is UNKNOWN else each.outcome
            if isinstance(each.call, CountPartitions | ReadSetting) and outcome != MISSING:
                outcome = "read"
            kinds[f"{type(each.call).__name__} {outcome}"] += 1
        return kinds

    def add(self, *operations: Operation) -> None:
        with self._lock:
            self._operations += operations

    def add_problem(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)

    # The topics that are used at the moment

    @property
    def names(self) -> list[str]:
        with self._lock:
            return list(self._names)

    def use(self, names: Sequence[str]) -> None:
        with self._lock:
            self._names = list(names)

    def new_setting(self) -> str:
        """A value that no other call sets."""
        with self._lock:
            return str(next(self._numbers))


class BrokenError(Exception):
    """The connection broke: the request may have been served or not."""


@contextmanager
def broken_connections() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BrokenError(str(error)) from error


class Caller(threading.Thread):
    """A client that makes one call after the other until `finish`."""

    def __init__(self, name: str, history: History, chance: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self._history = history
        self._chance = chance
        self._stopped = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._use_one_connection()
                except BrokenError:
                    pause()
        except Exception as error:  # noqa: BLE001 - the test reports it
            self._history.add_problem(f"{self.name}: {error!r}")

    def stop(self) -> None:
        self._stopped.set()

    def finish(self) -> None:
        self.stop()
        self.join(_JOIN_S)
        assert not self.is_alive(), f"{self.name} does not end"

    def _use_one_connection(self) -> None:
        with broken_connections():
            wire = self._connect()
        with wire:
            while not self._stopped.is_set() and self._call(wire):
                pass

    def _connect(self) -> WireClient:
        raise NotImplementedError

    def _call(self, wire: WireClient) -> bool:
        """False if the connection is of no more use."""
        raise NotImplementedError

    def _random_call(self) -> Call:
        count = self._chance.randint(1, PARTITIONS_MAX)
        setting = self._history.new_setting()
        create = Create(count, setting)
        calls = (create, create, Delete(), Grow(count), Configure(setting), CountPartitions())
        return self._chance.choice(calls)

    def _make(self, wire: WireClient, name: str, call: Call) -> tuple[float, str | None]:
        """Time of the invocation, and outcome. Records the call."""
        invoked = time.monotonic()
        try:
            with broken_connections():
                outcome = outcome_of(name, call, wire.ask(request_for(name, call)))
        except BrokenError:
            self._record(name, call, invoked, UNKNOWN)
            raise
        self._record(name, call, invoked, outcome)
        return invoked, outcome

    def _record(self, name: str, call: Call, invoked: float, outcome: str | None) -> None:
        returned = NEVER if outcome is UNKNOWN else time.monotonic()
        self._history.add(Operation(name, self.name, call, invoked, returned, outcome))


class BrokerCaller(Caller):
    """Through a broker, which finds the active controller."""

    def __init__(self, name: str, history: History, chance: random.Random, address: str) -> None:
        super().__init__(name, history, chance)
        self._address = address

    def _connect(self) -> WireClient:
        return WireClient(self._address, self.name)

    def _call(self, wire: WireClient) -> bool:
        self._make(wire, self._chance.choice(self._history.names), self._random_call())
        return True


class ControllerCaller(Caller):
    """At the active controller itself. It also reads settings there."""

    def __init__(
        self,
        name: str,
        history: History,
        chance: random.Random,
        addresses: Callable[[], Sequence[str]],
    ) -> None:
        super().__init__(name, history, chance)
        self._addresses = addresses

    def _connect(self) -> WireClient:
        return WireClient(self._chance.choice(self._addresses()), self.name)

    def _use_one_connection(self) -> None:
        with broken_connections():
            wire = self._connect()
        with wire:
            with broken_connections():
                is_active = led_quorum(wire) is not None
            while is_active and not self._stopped.is_set():
                is_active = self._call(wire)
            if not is_active:
                pause()

    def _call(self, wire: WireClient) -> bool:
        name, call = self._chance.choice(self._history.names), self._random_call()
        if isinstance(call, CountPartitions):
            return self.read(wire, name)
        return self._make(wire, name, call)[1] is not UNKNOWN

    def read(self, wire: WireClient, name: str) -> bool:
        """Both properties. DescribeConfigs is answered by any controller: this one was active when
        it counted the partitions, and has applied what was committed before that.
        """
        invoked, outcome = self._make(wire, name, CountPartitions())
        if outcome is UNKNOWN:
            return False
        with broken_connections():
            answer = wire.ask(_describe_request(name))
        self._record(name, ReadSetting(), invoked, setting_in(answer))
        return True


# Requests and responses


def request_for(name: str, call: Call) -> Message:
    match call:
        case Create(partitions, setting):
            return create_topics_request({name: partitions}, {SETTING: setting})
        case Delete():
            return delete_topics_request(name)
        case Grow(partitions):
            return _grow_request(name, partitions, validate_only=False)
        case Configure(setting):
            return set_config_request(name, SETTING, setting)
        case CountPartitions():
            # Refused, with the number in the message: no topic has fewer.
            return _grow_request(name, 1, validate_only=True)
        case ReadSetting():
            return _describe_request(name)


def _grow_request(name: str, count: int, *, validate_only: bool) -> Message:
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(
        topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=validate_only
    )


def _describe_request(name: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=[SETTING]
    )
    return DescribeConfigsRequest(resources=[resource])


def outcome_of(name: str, call: Call, answer: Any) -> str | None:
    if isinstance(call, ReadSetting):
        return setting_in(answer)
    (result,) = _results(call, answer)
    code = ErrorCode(result.error_code)
    assert code in _OUTCOMES, (name, call, code.name, result.error_message)
    if isinstance(call, CountPartitions) and code is ErrorCode.INVALID_PARTITIONS:
        found = re.search(r"(\d+) partition\(s\)", result.error_message)
        assert found is not None, result.error_message
        return found[1]
    return _OUTCOMES[code]


def _results(call: Call, answer: Any) -> Any:
    match call:
        case Create():
            return answer.topics
        case Grow() | CountPartitions():
            return answer.results
        case _:
            return answer.responses


def setting_in(answer: Any) -> str:
    (result,) = answer.results
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return MISSING
    assert result.error_code == 0, (result.error_code, result.error_message)
    (config,) = result.configs
    return str(config.value)


# Views of brokers


class Watcher(Caller):
    """Reads the topics at one broker, whose metadata lags but never goes back: no topic has fewer
    partitions than before, and none that was replaced is seen again.
    """

    def __init__(self, history: History, address: str) -> None:
        super().__init__(f"watcher of {address}", history, random.Random())
        self._address = address
        self._seen: dict[str, list[tuple[bytes, int]]] = {}
        self.reads = 0

    def _connect(self) -> WireClient:
        return WireClient(self._address, self.name)

    def _call(self, wire: WireClient) -> bool:
        with broken_connections():
            answer = wire.ask(MetadataRequest(topics=None))
        self.reads += 1
        for topic in answer.topics:
            self._look(topic.name, (bytes(topic.topic_id), len(topic.partitions)))
        pause()
        return True

    def _look(self, name: str, found: tuple[bytes, int]) -> None:
        seen = self._seen.setdefault(name, [])
        if seen and seen[-1] == found:
            return
        older = [topic_id for topic_id, _ in seen if not seen or topic_id != seen[-1][0]]
        is_smaller = bool(seen) and seen[-1][0] == found[0] and seen[-1][1] > found[1]
        if found[0] in older or is_smaller:
            self._history.add_problem(f"{self.name}: {name} is {found} after {seen[-3:]}")
        seen.append(found)
