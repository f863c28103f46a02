"""The APIs that a broker's listener serves. A loader imports its handler at the first request: a
node starts without most of them.
"""

from collections.abc import Callable

from moldau.broker.server.context import Handler
from moldau.broker.server.handler_table import HandlerTable
from moldau.protocol.api_keys import ApiKey


def broker_table(*, unstable: bool = False) -> HandlerTable:
    return HandlerTable(HANDLERS, controller=False, unstable=unstable)


def _produce() -> Handler:
    from moldau.broker.handlers.produce import handle_produce

    return handle_produce


def _fetch() -> Handler:
    from moldau.broker.handlers.fetch import handle_fetch

    return handle_fetch


def _list_offsets() -> Handler:
    from moldau.broker.handlers.list_offsets import handle_list_offsets

    return handle_list_offsets


def _metadata() -> Handler:
    from moldau.broker.handlers.metadata import handle_metadata

    return handle_metadata


def _offset_commit() -> Handler:
    from moldau.broker.handlers.offset_commit import handle_offset_commit

    return handle_offset_commit


def _offset_fetch() -> Handler:
    from moldau.broker.handlers.offset_fetch import handle_offset_fetch

    return handle_offset_fetch


def _find_coordinator() -> Handler:
    from moldau.broker.handlers.find_coordinator import handle_find_coordinator

    return handle_find_coordinator


def _join_group() -> Handler:
    from moldau.broker.handlers.join_group import handle_join_group

    return handle_join_group


def _heartbeat() -> Handler:
    from moldau.broker.handlers.heartbeat import handle_heartbeat

    return handle_heartbeat


def _leave_group() -> Handler:
    from moldau.broker.handlers.leave_group import handle_leave_group

    return handle_leave_group


def _sync_group() -> Handler:
    from moldau.broker.handlers.sync_group import handle_sync_group

    return handle_sync_group


def _describe_groups() -> Handler:
    from moldau.broker.handlers.describe_groups import handle_describe_groups

    return handle_describe_groups


def _list_groups() -> Handler:
    from moldau.broker.handlers.list_groups import handle_list_groups

    return handle_list_groups


def _sasl_handshake() -> Handler:
    from moldau.broker.handlers.sasl_handshake import handle_sasl_handshake

    return handle_sasl_handshake


def _api_versions() -> Handler:
    from moldau.broker.handlers.api_versions import handle_api_versions

    return handle_api_versions


def _forwarded() -> Handler:
    from moldau.broker.handlers.forwarded import handle_forwarded

    return handle_forwarded


def _delete_records() -> Handler:
    from moldau.broker.handlers.delete_records import handle_delete_records

    return handle_delete_records


def _init_producer_id() -> Handler:
    from moldau.broker.handlers.init_producer_id import handle_init_producer_id

    return handle_init_producer_id


def _offset_for_leader_epoch() -> Handler:
    from moldau.broker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch

    return handle_offset_for_leader_epoch


def _add_partitions_to_txn() -> Handler:
    from moldau.broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn

    return handle_add_partitions_to_txn


def _add_offsets_to_txn() -> Handler:
    from moldau.broker.handlers.add_offsets_to_txn import handle_add_offsets_to_txn

    return handle_add_offsets_to_txn


def _end_txn() -> Handler:
    from moldau.broker.handlers.end_txn import handle_end_txn

    return handle_end_txn


def _write_txn_markers() -> Handler:
    from moldau.broker.handlers.write_txn_markers import handle_write_txn_markers

    return handle_write_txn_markers


def _txn_offset_commit() -> Handler:
    from moldau.broker.handlers.txn_offset_commit import handle_txn_offset_commit

    return handle_txn_offset_commit


def _acls() -> Handler:
    from moldau.broker.handlers.acls import handle_acls

    return handle_acls


def _describe_configs() -> Handler:
    from moldau.broker.handlers.describe_configs import handle_describe_configs

    return handle_describe_configs


def _alter_configs() -> Handler:
    from moldau.broker.handlers.alter_configs import handle_alter_configs

    return handle_alter_configs


def _alter_replica_log_dirs() -> Handler:
    from moldau.broker.handlers.alter_replica_log_dirs import handle_alter_replica_log_dirs

    return handle_alter_replica_log_dirs


def _describe_log_dirs() -> Handler:
    from moldau.broker.handlers.describe_log_dirs import handle_describe_log_dirs

    return handle_describe_log_dirs


def _sasl_authenticate() -> Handler:
    from moldau.broker.handlers.sasl_authenticate import handle_sasl_authenticate

    return handle_sasl_authenticate


def _delete_groups() -> Handler:
    from moldau.broker.handlers.delete_groups import handle_delete_groups

    return handle_delete_groups


def _incremental_alter_configs() -> Handler:
    from moldau.broker.handlers.alter_configs import handle_incremental_alter_configs

    return handle_incremental_alter_configs


def _offset_delete() -> Handler:
    from moldau.broker.handlers.offset_delete import handle_offset_delete

    return handle_offset_delete


def _describe_cluster() -> Handler:
    from moldau.broker.handlers.describe_cluster import handle_describe_cluster

    return handle_describe_cluster


def _describe_producers() -> Handler:
    from moldau.broker.handlers.describe_producers import handle_describe_producers

    return handle_describe_producers


def _describe_transactions() -> Handler:
    from moldau.broker.handlers.describe_transactions import handle_describe_transactions

    return handle_describe_transactions


def _list_transactions() -> Handler:
    from moldau.broker.handlers.list_transactions import handle_list_transactions

    return handle_list_transactions


def _list_config_resources() -> Handler:
    from moldau.broker.handlers.list_config_resources import handle_list_config_resources

    return handle_list_config_resources


def _describe_topic_partitions() -> Handler:
    from moldau.broker.handlers.describe_topic_partitions import handle_describe_topic_partitions

    return handle_describe_topic_partitions


HANDLERS: dict[ApiKey, Callable[[], Handler]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.SASL_HANDSHAKE: _sasl_handshake,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: _forwarded,
    ApiKey.DELETE_TOPICS: _forwarded,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: _acls,
    ApiKey.CREATE_ACLS: _acls,
    ApiKey.DELETE_ACLS: _acls,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.SASL_AUTHENTICATE: _sasl_authenticate,
    ApiKey.CREATE_PARTITIONS: _forwarded,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.ELECT_LEADERS: _forwarded,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _forwarded,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _forwarded,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_QUORUM: _forwarded,
    ApiKey.UPDATE_FEATURES: _forwarded,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.UNREGISTER_BROKER: _forwarded,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.LIST_CONFIG_RESOURCES: _list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.ADD_RAFT_VOTER: _forwarded,
    ApiKey.REMOVE_RAFT_VOTER: _forwarded,
}
"""Served by `forwarded`, which sends a request to the active controller, which decides it
(`core/controller/decisions.py`).
"""
