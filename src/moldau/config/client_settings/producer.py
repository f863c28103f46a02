"""A producer's settings."""

from typing import Any

from moldau.config.checks import GZIP_LEVEL, NOT_EMPTY, at_least, between, one_of
from moldau.config.client_settings.common import ClientConfig
from moldau.config.schema import HIGH, LOW, setting
from moldau.config.values import BOOLEAN, CLASS, INT, KIB, LIST, LONG, MIB, MINUTE_MS, STRING
from moldau.types import INT32_MAX


class ProducerConfig(ClientConfig):
    acks: str = setting(
        "acks",
        STRING,
        "all",
        "Replicas that must acknowledge a record: all in-sync replicas (all or -1), the leader "
        "(1), none (0).",
        check=one_of("all", "-1", "0", "1"),
        importance=LOW,
        has_effect=True,
    )
    batch_size: int = setting(
        "batch.size",
        INT,
        16 * KIB,
        "The size in bytes at which a batch of records for one partition is sent at once. A batch"
        " that has to wait may grow further. 0 sends every record alone.",
        check=at_least(0),
        has_effect=True,
    )
    buffer_memory: int = setting(
        "buffer.memory",
        LONG,
        32 * MIB,
        "How many bytes may wait to be sent; at the limit send waits for up to max.block.ms.",
        check=at_least(0),
        importance=HIGH,
        has_effect=True,
    )
    compression_type: str = setting(
        "compression.type",
        STRING,
        "none",
        "How batches are compressed.",
        check=one_of("none", "gzip", "snappy", "lz4", "zstd"),
        importance=HIGH,
        has_effect=True,
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        INT,
        -1,
        "The compression level of gzip.",
        check=GZIP_LEVEL,
        has_effect=True,
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        INT,
        9,
        "The compression level of lz4.",
        check=between(1, 17),
        has_effect=True,
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        INT,
        3,
        "The compression level of zstd.",
        check=between(-131072, 22),
        has_effect=True,
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        INT,
        2 * MINUTE_MS,
        "How long a record may take from send to its outcome, including linger and all retries.",
        check=at_least(0),
        has_effect=True,
    )
    enable_idempotence: bool = setting(
        "enable.idempotence",
        BOOLEAN,
        True,
        "Whether brokers drop the duplicates of a retried request.",
        importance=LOW,
        has_effect=True,
    )
    interceptor_classes: tuple[Any, ...] = setting(
        "interceptor.classes",
        LIST,
        (),
        "Objects that see every record before it is sent, and its outcome.",
        importance=LOW,
        has_effect=True,
    )
    key_serializer: Any = setting(
        "key.serializer",
        CLASS,
        None,
        "The serializer of keys: a name or a function; bytes need none.",
        importance=HIGH,
        has_effect=True,
    )
    linger_ms: int = setting(
        "linger.ms",
        LONG,
        5,
        "How long a batch waits for more records.",
        check=at_least(0),
        has_effect=True,
    )
    max_block_ms: int = setting(
        "max.block.ms",
        LONG,
        MINUTE_MS,
        "How long send may wait for memory and for the topic's metadata.",
        check=at_least(0),
        has_effect=True,
    )
    max_in_flight_requests_per_connection: int = setting(
        "max.in.flight.requests.per.connection",
        INT,
        5,
        "How many requests to a broker may be in flight.",
        check=at_least(1),
        importance=LOW,
        has_effect=True,
    )
    max_request_size: int = setting(
        "max.request.size",
        INT,
        MIB,
        "The largest request, and the largest record, in bytes before compression.",
        check=at_least(0),
        has_effect=True,
    )
    metadata_max_idle_ms: int = setting(
        "metadata.max.idle.ms",
        LONG,
        5 * MINUTE_MS,
        "The metadata of a topic is dropped if nothing was sent to it for this long.",
        check=at_least(5000),
        importance=LOW,
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        "partitioner.adaptive.partitioning.enable",
        BOOLEAN,
        True,
        "Whether more records without a key go to partitions of faster brokers.",
        importance=LOW,
        has_effect=True,
    )
    partitioner_availability_timeout_ms: int = setting(
        "partitioner.availability.timeout.ms",
        LONG,
        0,
        "A broker that accepted nothing for this long gets no records without a key; 0 disables "
        "the check.",
        check=at_least(0),
        importance=LOW,
        has_effect=True,
    )
    partitioner_class: Any = setting(
        "partitioner.class",
        CLASS,
        None,
        "The partitioner: a name or a function; by default murmur2 of the key, and a sticky "
        "partition for records without a key.",
        has_effect=True,
    )
    partitioner_ignore_keys: bool = setting(
        "partitioner.ignore.keys",
        BOOLEAN,
        False,
        "Whether keys are ignored when partitions are chosen.",
        has_effect=True,
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes",
        INT,
        32 * KIB,
        "The socket's receive buffer. Has no effect: the system chooses it, as with -1.",
        check=at_least(-1),
    )
    retries: int = setting(
        "retries",
        INT,
        INT32_MAX,
        "How many times a batch is retried; delivery.timeout.ms is the better limit.",
        check=between(0, INT32_MAX),
        importance=HIGH,
        has_effect=True,
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        INT,
        MINUTE_MS,
        "The coordinator aborts a transaction that is open for longer than this.",
        importance=LOW,
        has_effect=True,
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "Whether another system decides how transactions end (KIP-939).",
        importance=LOW,
    )
    transactional_id: str | None = setting(
        "transactional.id",
        STRING,
        None,
        "The name under which a producer continues after a restart; it makes the producer "
        "transactional.",
        check=NOT_EMPTY,
        importance=LOW,
        has_effect=True,
    )
    value_serializer: Any = setting(
        "value.serializer",
        CLASS,
        None,
        "The serializer of values: a name or a function; bytes need none.",
        importance=HIGH,
        has_effect=True,
    )
