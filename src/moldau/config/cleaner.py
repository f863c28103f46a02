"""Memory and buffers of one compaction pass, computed from the broker's settings."""

from typing import TYPE_CHECKING

from moldau.config.broker_settings.cleaner import CleanerSettings
from moldau.frozen import frozen

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

_DEFAULTS = CleanerSettings()


@frozen(kw_only=True)
class CleanerConfig:
    dedupe_buffer_bytes: int = _DEFAULTS.log_cleaner_dedupe_buffer_size
    load_factor: float = _DEFAULTS.log_cleaner_io_buffer_load_factor
    io_buffer_bytes: int = _DEFAULTS.log_cleaner_io_buffer_size


def cleaner_config(broker: "BrokerConfig") -> CleanerConfig:
    """The share of one cleaner: Kafka's settings are totals of all cleaner threads."""
    threads = max(broker.log_cleaner_threads, 1)
    return CleanerConfig(
        dedupe_buffer_bytes=broker.log_cleaner_dedupe_buffer_size // threads,
        load_factor=broker.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=max(broker.log_cleaner_io_buffer_size // threads, 1),
    )
