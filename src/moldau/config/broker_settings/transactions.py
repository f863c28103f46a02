"""Transactions and producer ids."""

from moldau.config.checks import at_least
from moldau.config.schema import CLUSTER_WIDE, HIGH, LOW, SettingGroup, setting
from moldau.config.values import BOOLEAN, DAY_MS, HOUR_MS, INT, MIB, MINUTE_MS, SHORT


class TransactionSettings(SettingGroup):
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        100,
        "The longest time for which the broker retries adding a partition to a transaction while "
        "another change of the transaction is pending.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        20,
        "The pause before the broker retries adding a partition to a transaction.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        INT,
        10 * MINUTE_MS,
        "How often expired producer ids are removed.",
        check=at_least(1),
        importance=LOW,
        is_internal=True,
        has_effect=True,
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        INT,
        DAY_MS,
        "A partition forgets a producer id that wrote nothing to it for this long.",
        check=at_least(1),
        importance=LOW,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10_000,
        "How often the coordinator looks for transactions that exceeded their timeout, and aborts"
        " them.",
        check=at_least(1),
        importance=LOW,
        has_effect=True,
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        INT,
        15 * MINUTE_MS,
        "The longest timeout that a transactional producer may request.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        "Whether a partition's leader checks with the coordinator that the partition belongs "
        "to the transaction.",
        importance=LOW,
        mode=CLUSTER_WIDE,
        has_effect=True,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        HOUR_MS,
        "How often expired transactional ids are removed.",
        check=at_least(1),
        importance=LOW,
        has_effect=True,
    )
    transaction_state_log_load_buffer_size: int = setting(
        "transaction.state.log.load.buffer.size",
        INT,
        5 * MIB,
        "How much of the transaction topic is read at once when a coordinator takes over.",
        check=at_least(1),
        importance=HIGH,
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        INT,
        2,
        "How many replicas of the transaction topic must hold a record.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        INT,
        50,
        "How many partitions the transaction topic gets. It cannot be changed later.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        "How many replicas the transaction topic gets. With fewer brokers it is not created.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        INT,
        100 * MIB,
        "The segment size of the transaction topic; small segments load and compact faster.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "Whether transactions may take part in two-phase commits, without a timeout.",
        importance=LOW,
        has_effect=True,
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        INT,
        7 * DAY_MS,
        "A transactional id without a change for this long is forgotten.",
        check=at_least(1),
        importance=HIGH,
        has_effect=True,
    )
