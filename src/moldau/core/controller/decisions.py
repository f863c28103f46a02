"""The functions that decide the controller's requests, and what it does periodically. The module of
each is imported when it is needed first, because a starting node needs few of them.
"""

from collections.abc import Callable
from typing import Any

from moldau.core.controller.decision_context import DecisionContext
from moldau.core.decision import Decision
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.wire.schema import Message

Decide = Callable[[DecisionContext, Any, int], Decision[Message, Any]]
"""Takes context, request and version. Raises KafkaError to refuse the whole request."""


def decide(context: DecisionContext, request: Message, version: int) -> Decision[Message, Any]:
    """Changes nothing. Raises KafkaError if the whole request is refused."""
    return decision_of(ApiKey(request.API_KEY))(context, request, version)


def decision_of(api_key: ApiKey) -> Decide:
    return DECISIONS[api_key]()


def fence_stale_broker(context: DecisionContext) -> Decision[Message, Any]:
    from moldau.core.controller.brokers.fencing import decide_fence_stale_broker

    return decide_fence_stale_broker(context)


def balance_leaders(context: DecisionContext) -> Decision[Message, None]:
    from moldau.core.controller.partitions.leadership import preferred_leader_records

    return Decision(None, preferred_leader_records(context), is_atomic=False)


def elect_unclean_leaders(context: DecisionContext) -> Decision[Message, None]:
    from moldau.core.controller.partitions.leadership import unclean_leader_records

    return Decision(None, unclean_leader_records(context), is_atomic=False)


def _create_topics() -> Decide:
    from moldau.core.controller.topics.create_topics import decide_create_topics

    return decide_create_topics


def _delete_topics() -> Decide:
    from moldau.core.controller.topics.delete_topics import decide_delete_topics

    return decide_delete_topics


def _alter_configs() -> Decide:
    from moldau.core.controller.config_changes import decide_alter_configs

    return decide_alter_configs


def _create_partitions() -> Decide:
    from moldau.core.controller.topics.create_partitions import decide_create_partitions

    return decide_create_partitions


def _elect_leaders() -> Decide:
    from moldau.core.controller.partitions.elect_leaders import decide_elect_leaders

    return decide_elect_leaders


def _incremental_alter_configs() -> Decide:
    from moldau.core.controller.config_changes import decide_incremental_alter_configs

    return decide_incremental_alter_configs


def _alter_partition_reassignments() -> Decide:
    from moldau.core.controller.partitions.alter_reassignments import decide_alter_reassignments

    return decide_alter_reassignments


def _list_partition_reassignments() -> Decide:
    from moldau.core.controller.partitions.alter_reassignments import decide_list_reassignments

    return decide_list_reassignments


def _alter_partition() -> Decide:
    from moldau.core.controller.partitions.alter_partition import decide_alter_partition

    return decide_alter_partition


def _update_features() -> Decide:
    from moldau.core.controller.features import decide_update_features

    return decide_update_features


def _broker_registration() -> Decide:
    from moldau.core.controller.brokers.registrations import decide_register_broker

    return decide_register_broker


def _broker_heartbeat() -> Decide:
    from moldau.core.controller.brokers.heartbeats import decide_heartbeat

    return decide_heartbeat


def _unregister_broker() -> Decide:
    from moldau.core.controller.brokers.registrations import decide_unregister_broker

    return decide_unregister_broker


def _allocate_producer_ids() -> Decide:
    from moldau.core.controller.producer_ids import decide_allocate_producer_ids

    return decide_allocate_producer_ids


def _controller_registration() -> Decide:
    from moldau.core.controller.brokers.registrations import decide_register_controller

    return decide_register_controller


def _assign_replicas_to_dirs() -> Decide:
    from moldau.core.controller.brokers.directories import decide_assign_directories

    return decide_assign_directories


DECISIONS: dict[ApiKey, Callable[[], Decide]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
    ApiKey.ALTER_PARTITION: _alter_partition,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.BROKER_REGISTRATION: _broker_registration,
    ApiKey.BROKER_HEARTBEAT: _broker_heartbeat,
    ApiKey.UNREGISTER_BROKER: _unregister_broker,
    ApiKey.ALLOCATE_PRODUCER_IDS: _allocate_producer_ids,
    ApiKey.CONTROLLER_REGISTRATION: _controller_registration,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _assign_replicas_to_dirs,
}

REPEATABLE = frozenset(
    {
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""Requests that may be decided twice: they only read, or a broker repeats them in any case, or, as
AlterPartition, they name the state that they change. The second decision about any other may deny
what the first has done, or undo what others have done since.
"""
