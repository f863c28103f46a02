"""Options of the producer's engine, from its settings. Contradictory settings are refused, as in
Kafka's producer.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from moldau.client.config import client_config
from moldau.client.errors import ConfigError
from moldau.client.producer.requests import ProduceTerms
from moldau.config.client_settings.producer import ProducerConfig
from moldau.core.client.backoff import Backoff
from moldau.core.producer.sending import SendRules
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.compression import COMPRESSION_NAMES, Compression

ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_IN_FLIGHT_MAX_IDEMPOTENT = 5
_NEGATIVE_LEVEL_IS_DEFAULT = -1
# Upper bounds: the header of a batch, and the length fields of a record and of its headers.
_RECORD_OVERHEAD_BYTES = 128
_HEADER_OVERHEAD_BYTES = 10

RecordHeaders: TypeAlias = Iterable[tuple[str, bytes | None]]


@frozen(kw_only=True)
class EngineOptions:
    rules: SendRules
    terms: ProduceTerms
    batch_bytes: int = 16 * 1024
    memory_bytes: int = 32 * 1024 * 1024
    in_flight_max: int = 5
    max_block_ms: float = 60_000
    metadata_max_age_ms: float = 300_000
    hashes_keys: bool = True
    is_sticky: bool = True
    is_adaptive: bool = True
    availability_timeout_ms: float = 0
    """0 switches this off."""

    def check_size(self, key: bytes | None, value: bytes | None, headers: RecordHeaders) -> None:
        """Raises MESSAGE_TOO_LARGE for a record that would never fit."""
        size = len(key or b"") + len(value or b"")
        for name, content in headers:
            size += len(name.encode()) + len(content or b"") + _HEADER_OVERHEAD_BYTES
        most = min(self.rules.request_bytes_max, self.memory_bytes) - _RECORD_OVERHEAD_BYTES
        if size > most:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes; max.request.size and buffer.memory allow {most}",
            )


def producer_config(
    config: Mapping[str, Any] | None, arguments: Mapping[str, Any]
) -> ProducerConfig:
    """Checks the settings. Raises ConfigError. Idempotence is switched off if another setting
    conflicts with it and it is only on by default.
    """
    made = client_config(ProducerConfig, config, arguments)
    given = {name.replace(".", "_") for name in config or {}} | {
        name for name, value in arguments.items() if value is not None
    }
    conflict = _conflict(made)
    if made.enable_idempotence and conflict is not None:
        if "enable_idempotence" in given or made.transactional_id is not None:
            raise ConfigError(f"idempotence needs {conflict}")
        made = made.with_changes(enable_idempotence=False)
    if made.transactional_id is not None and not made.enable_idempotence:
        raise ConfigError("transactional.id needs enable.idempotence")
    if made.batch_size > made.buffer_memory:
        raise ConfigError(
            f"batch.size={made.batch_size} is more than buffer.memory={made.buffer_memory}"
        )
    least_ms = made.linger_ms + made.request_timeout_ms
    if made.delivery_timeout_ms < least_ms:
        if "delivery_timeout_ms" in given:
            raise ConfigError(
                f"delivery.timeout.ms={made.delivery_timeout_ms} is less than linger.ms and "
                f"request.timeout.ms together, {least_ms}"
            )
        made = made.with_changes(delivery_timeout_ms=least_ms)
    return made


def _conflict(config: ProducerConfig) -> str | None:
    if ACKS[config.acks] != -1:
        return f"acks=all, not {config.acks}"
    if config.retries == 0:
        return "retries"
    if config.max_in_flight_requests_per_connection > _IN_FLIGHT_MAX_IDEMPOTENT:
        return "max.in.flight.requests.per.connection of 5 at most"
    return None


def engine_options(config: ProducerConfig) -> EngineOptions:
    compression = COMPRESSION_NAMES[config.compression_type]
    rules = SendRules(
        is_idempotent=config.enable_idempotence,
        is_transactional=config.transactional_id is not None,
        linger_ms=config.linger_ms,
        retries=config.retries,
        delivery_timeout_ms=config.delivery_timeout_ms,
        request_bytes_max=config.max_request_size,
        compression=compression,
        compression_level=_level(config, compression),
        backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
    )
    has_partitioner = config.partitioner_class is not None
    return EngineOptions(
        rules=rules,
        terms=ProduceTerms(ACKS[config.acks], config.request_timeout_ms, config.transactional_id),
        batch_bytes=config.batch_size,
        memory_bytes=config.buffer_memory,
        in_flight_max=config.max_in_flight_requests_per_connection,
        max_block_ms=config.max_block_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        hashes_keys=not has_partitioner and not config.partitioner_ignore_keys,
        is_sticky=not has_partitioner,
        is_adaptive=config.partitioner_adaptive_partitioning_enable,
        availability_timeout_ms=config.partitioner_availability_timeout_ms,
    )


def _level(config: ProducerConfig, compression: Compression) -> int | None:
    match compression:
        case Compression.GZIP:
            level = config.compression_gzip_level
            return None if level == _NEGATIVE_LEVEL_IS_DEFAULT else level
        case Compression.LZ4:
            return config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
        case Compression.NONE | Compression.SNAPPY:
            return None
