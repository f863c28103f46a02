"""The APIs that the controller's listener serves. A loader imports its handler at the first
request.
"""

from collections.abc import Callable

from moldau.broker.server.context import Handler
from moldau.broker.server.handler_table import HandlerTable
from moldau.protocol.api_keys import ApiKey


def controller_table() -> HandlerTable:
    forwarded = HandlerTable(CONTROLLER_HANDLERS, controller=True)

    def _envelope() -> Handler:
        from moldau.broker.controller_handlers.envelope import envelope_handler

        return envelope_handler(forwarded)

    return HandlerTable(CONTROLLER_HANDLERS | {ApiKey.ENVELOPE: _envelope}, controller=True)


def _api_versions() -> Handler:
    from moldau.broker.controller_handlers.api_versions import handle_api_versions

    return handle_api_versions


def _decided() -> Handler:
    from moldau.broker.controller_handlers.decided import handle_decided

    return handle_decided


def _quorum() -> Handler:
    from moldau.broker.controller_handlers.quorum_requests import handle_quorum_request

    return handle_quorum_request


def _acls() -> Handler:
    from moldau.broker.controller_handlers.acls import handle_acls

    return handle_acls


def _describe_configs() -> Handler:
    from moldau.broker.controller_handlers.describe_configs import handle_describe_configs

    return handle_describe_configs


def _describe_cluster() -> Handler:
    from moldau.broker.controller_handlers.describe_cluster import handle_describe_cluster

    return handle_describe_cluster


CONTROLLER_HANDLERS: dict[ApiKey, Callable[[], Handler]] = {
    ApiKey.FETCH: _quorum,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: _decided,
    ApiKey.DELETE_TOPICS: _decided,
    ApiKey.DESCRIBE_ACLS: _acls,
    ApiKey.CREATE_ACLS: _acls,
    ApiKey.DELETE_ACLS: _acls,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _decided,
    ApiKey.CREATE_PARTITIONS: _decided,
    ApiKey.ELECT_LEADERS: _decided,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _decided,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _decided,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _decided,
    ApiKey.VOTE: _quorum,
    ApiKey.BEGIN_QUORUM_EPOCH: _quorum,
    ApiKey.END_QUORUM_EPOCH: _quorum,
    ApiKey.DESCRIBE_QUORUM: _decided,
    ApiKey.ALTER_PARTITION: _decided,
    ApiKey.UPDATE_FEATURES: _decided,
    ApiKey.FETCH_SNAPSHOT: _quorum,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.BROKER_REGISTRATION: _decided,
    ApiKey.BROKER_HEARTBEAT: _decided,
    ApiKey.UNREGISTER_BROKER: _decided,
    ApiKey.ALLOCATE_PRODUCER_IDS: _decided,
    ApiKey.CONTROLLER_REGISTRATION: _decided,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _decided,
    ApiKey.ADD_RAFT_VOTER: _quorum,
    ApiKey.REMOVE_RAFT_VOTER: _quorum,
    ApiKey.UPDATE_RAFT_VOTER: _quorum,
}
"""Served by `decided`, which calls `core/controller/decisions.py`."""
