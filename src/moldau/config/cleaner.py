"""The settings of compaction that belong to a node, not to a topic: memory and buffers."""

from dataclasses import dataclass

from moldau.config.schema import at_least, between, check_settings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    dedupe_buffer_bytes: int = setting(
        "log.cleaner.dedupe.buffer.size", 128 << 20, "Memory for the keys of one compaction pass.",
        check=at_least(48),
    )  # fmt: skip
    load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", 0.9, "How full the memory for keys may become.",
        check=between(0.01, 0.99),
    )  # fmt: skip
    io_buffer_bytes: int = setting(
        "log.cleaner.io.buffer.size", 512 << 10, "How much of a segment is read at once.",
        check=at_least(1),
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_settings(self)
