"""A consumer's settings."""

from typing import Any

from moldau.config.checks import BY_DURATION, NOT_EMPTY, at_least, holding, one_of, one_of_any_case
from moldau.config.client_settings.common import ClientConfig
from moldau.config.schema import HIGH, LOW, setting
from moldau.config.values import BOOLEAN, CLASS, INT, LIST, MIB, MINUTE_MS, SECOND_MS, STRING

_OFFSET_RESET = holding(
    "latest, earliest, none or by_duration:PnDTnHnMn.nS",
    "Value must be latest, earliest, none or by_duration:PnDTnHnMn.nS",
    lambda text: text in {"latest", "earliest", "none"} or BY_DURATION.fullmatch(text) is not None,
)


class FetchSettings(ClientConfig):
    check_crcs: bool = setting(
        "check.crcs",
        BOOLEAN,
        True,
        "Whether the checksum of every batch is verified.",
        importance=LOW,
        has_effect=True,
    )
    client_rack: str = setting(
        "client.rack",
        STRING,
        "",
        "The rack of this client. It reads from a replica in its rack if the brokers allow it.",
        importance=LOW,
        has_effect=True,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        INT,
        50 * MIB,
        "The largest response to a fetch, in bytes.",
        check=at_least(0),
        has_effect=True,
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms",
        INT,
        500,
        "How long a broker waits for fetch.min.bytes.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    fetch_min_bytes: int = setting(
        "fetch.min.bytes",
        INT,
        1,
        "How many bytes a broker waits for before it responds.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    isolation_level: str = setting(
        "isolation.level",
        STRING,
        "read_uncommitted",
        "Whether records of open and aborted transactions are read.",
        check=one_of("read_committed", "read_uncommitted"),
        has_effect=True,
    )
    key_deserializer: Any = setting(
        "key.deserializer",
        CLASS,
        None,
        "The deserializer of keys: a name or a function; by default keys stay bytes.",
        importance=HIGH,
        has_effect=True,
    )
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes",
        INT,
        MIB,
        "The most bytes of one partition in a response to a fetch.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    max_poll_records: int = setting(
        "max.poll.records",
        INT,
        500,
        "How many records poll returns at most.",
        check=at_least(1),
        has_effect=True,
    )
    value_deserializer: Any = setting(
        "value.deserializer",
        CLASS,
        None,
        "The deserializer of values: a name or a function; by default values stay bytes.",
        importance=HIGH,
        has_effect=True,
    )


class GroupMemberSettings(ClientConfig):
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms",
        INT,
        5 * SECOND_MS,
        "How often positions are committed automatically.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    auto_offset_reset: str = setting(
        "auto.offset.reset",
        STRING,
        "latest",
        "Where to start without a committed offset: latest, earliest, by_duration:P… before now, "
        "or none, which raises an error.",
        check=_OFFSET_RESET,
        has_effect=True,
    )
    enable_auto_commit: bool = setting(
        "enable.auto.commit",
        BOOLEAN,
        True,
        "Whether positions are committed automatically.",
        has_effect=True,
    )
    group_id: str | None = setting(
        "group.id",
        STRING,
        None,
        "The group that the consumer joins.",
        importance=HIGH,
        has_effect=True,
    )
    group_instance_id: str | None = setting(
        "group.instance.id",
        STRING,
        None,
        "Makes the consumer a static member: after a restart with the same name it gets its "
        "partitions back.",
        check=NOT_EMPTY,
        has_effect=True,
    )
    group_protocol: str = setting(
        "group.protocol",
        STRING,
        "classic",
        "The protocol of the group: classic, or consumer (KIP-848).",
        check=one_of_any_case("CONSUMER", "CLASSIC"),
        importance=HIGH,
        has_effect=True,
    )
    group_remote_assignor: str | None = setting(
        "group.remote.assignor",
        STRING,
        None,
        "The broker's assignor to use with group.protocol=consumer.",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms",
        INT,
        3 * SECOND_MS,
        "How often this member sends heartbeats to the coordinator.",
        importance=HIGH,
        has_effect=True,
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms",
        INT,
        5 * MINUTE_MS,
        "A member that does not poll for this long leaves its group.",
        check=at_least(1),
        has_effect=True,
    )
    partition_assignment_strategy: tuple[Any, ...] = setting(
        "partition.assignment.strategy",
        LIST,
        ("range", "cooperative-sticky"),
        "Assignors that this member supports, best first: names, Kafka's classes, or your own.",
        has_effect=True,
    )
    session_timeout_ms: int = setting(
        "session.timeout.ms",
        INT,
        45 * SECOND_MS,
        "A member that sends no heartbeat for this long is removed.",
        importance=HIGH,
        has_effect=True,
    )


class ConsumerConfig(FetchSettings, GroupMemberSettings):
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics",
        BOOLEAN,
        True,
        "Whether a broker may create a subscribed topic that does not exist.",
        has_effect=True,
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms",
        INT,
        MINUTE_MS,
        "How long a call may take, including all retries.",
        check=at_least(0),
        has_effect=True,
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics",
        BOOLEAN,
        True,
        "Whether a subscribed pattern excludes Kafka's internal topics.",
        has_effect=True,
    )
    interceptor_classes: tuple[Any, ...] = setting(
        "interceptor.classes",
        LIST,
        (),
        "Objects that see records before poll returns them, and committed offsets.",
        importance=LOW,
        has_effect=True,
    )
    internal_throw_on_fetch_stable_offset_unsupported: bool = setting(
        "internal.throw.on.fetch.stable.offset.unsupported",
        BOOLEAN,
        False,
        "Whether a broker that cannot wait for offsets of open transactions is an error.",
        importance=LOW,
        is_internal=True,
    )
    share_acknowledgement_mode: str = setting(
        "share.acknowledgement.mode",
        STRING,
        "implicit",
        "Whether a share group's records are acknowledged by the next poll or explicitly.",
        check=one_of("implicit", "explicit"),
    )
    share_acquire_mode: str = setting(
        "share.acquire.mode",
        STRING,
        "BATCH_OPTIMIZED",
        "Whether a share group's records are returned in whole batches.",
        check=one_of_any_case("batch_optimized", "record_limit"),
    )
