"""Misbehaving admin clients, for `fairness.py`: large requests that only the controller can decide,
and long values of settings.
"""

import contextlib
import threading
from collections.abc import Callable

from node_clients import CREATE_TOPICS_VERSION, request_frame
from rude_tools import Deadline, one_after_the_other

from moldau.protocol.messages import incremental_alter_configs as incremental
from moldau.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

TOPIC = "rude-admin"
THROTTLED_TOPICS = [f"rude-throttled-{number}" for number in range(11)]
TOPICS = [TOPIC, *THROTTLED_TOPICS]
"""These must exist."""
THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
TOPIC_RESOURCE = 2
ALTER_CONFIGS_VERSION = 1
CREATE_PARTITIONS_VERSION = 3
DELETE_TOPICS_VERSION = 6
# Operations of IncrementalAlterConfigs.
SET, APPEND, SUBTRACT = 0, 2, 3


def topics_created_and_deleted(port: int, deadline: Deadline) -> None:
    names = [f"{TOPIC}-made-{number}" for number in range(50)]
    topics = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
    create = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
    delete = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=n) for n in names], timeout_ms=60_000
    )
    frames = [
        request_frame(create, CREATE_TOPICS_VERSION),
        request_frame(delete, DELETE_TOPICS_VERSION),
    ]
    one_after_the_other(port, frames, deadline)


def many_topics_checked(port: int, deadline: Deadline) -> None:
    topics = [
        CreatableTopic(name=f"{TOPIC}-{number}", num_partitions=1, replication_factor=1)
        for number in range(5_000)
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=True)
    one_after_the_other(port, request_frame(request, CREATE_TOPICS_VERSION), deadline)


def many_topics_deleted(port: int, deadline: Deadline) -> None:
    """None of them exists."""
    topics = [DeleteTopicState(name=f"none-{number}") for number in range(50_000)]
    request = DeleteTopicsRequest(topics=topics, timeout_ms=60_000)
    one_after_the_other(port, request_frame(request, DELETE_TOPICS_VERSION), deadline)


# Changes of settings with 700 KB in 22 values


def _list_of_replicas(broker_id: int) -> str:
    """A value that has nearly the longest length."""
    return ",".join(f"{number}:{broker_id}" for number in range(4_800))[:32_000].rpartition(",")[0]


def settings_replaced(port: int, deadline: Deadline) -> None:
    configs = [AlterableConfig(name=name, value=_list_of_replicas(1)) for name in THROTTLES]
    resources = [
        AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
        for name in THROTTLED_TOPICS
    ]
    replace = request_frame(AlterConfigsRequest(resources=resources), ALTER_CONFIGS_VERSION)
    one_after_the_other(port, replace, deadline)


def lists_of_settings_changed(operation: int) -> Callable[[int, Deadline], None]:
    """Alternately: set to one list, and changed by another one that has the same length."""

    def change(port: int, deadline: Deadline) -> None:
        frames = [_change_of_lists(SET, 1), _change_of_lists(operation, 2)]
        one_after_the_other(port, frames, deadline)

    return change


def _change_of_lists(operation: int, broker_id: int) -> bytes:
    values = dict.fromkeys(THROTTLES, _list_of_replicas(broker_id))
    return _changes(THROTTLED_TOPICS, values, operation)


def _changes(topics: list[str], values: dict[str, str], operation: int) -> bytes:
    configs = [
        incremental.AlterableConfig(name=name, value=value, config_operation=operation)
        for name, value in values.items()
    ]
    resources = [
        incremental.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs
        )
        for topic in topics
    ]
    request = incremental.IncrementalAlterConfigsRequest(resources=resources)
    return request_frame(request, ALTER_CONFIGS_VERSION)


# Large decisions, while small ones come in between


def contended(rude: Callable[[int, Deadline], None]) -> Callable[[int, Deadline], None]:
    def both(port: int, deadline: Deadline) -> None:
        changing = threading.Thread(target=_change_a_setting, args=(port, deadline))
        changing.start()
        with contextlib.suppress(OSError):
            rude(port, deadline)
        changing.join()

    return both


def _change_a_setting(port: int, deadline: Deadline) -> None:
    frames = [_changes([TOPIC], {"flush.ms": value}, SET) for value in ("1000000", "1000001")]
    with contextlib.suppress(OSError):
        one_after_the_other(port, frames, deadline)


def many_new_partitions(port: int, deadline: Deadline) -> None:
    """Of topics that do not exist."""
    topics = [
        CreatePartitionsTopic(name=f"none-{number}", count=3, assignments=None)
        for number in range(16_000)
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=60_000)
    one_after_the_other(port, request_frame(request, CREATE_PARTITIONS_VERSION), deadline)
