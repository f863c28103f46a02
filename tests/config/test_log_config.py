"""Log settings: Kafka's names, defaults and bounds."""

import pytest

from moldau.config.log import LogConfig
from moldau.config.schema import from_properties
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError


def test_text_values_are_parsed_by_type() -> None:
    config = from_properties(
        LogConfig,
        {
            "cleanup.policy": "compact, delete",
            "segment.ms": "5",
            "min.cleanable.dirty.ratio": "0.25",
        },
        "topic",
    )
    assert config.compacts
    assert config.deletes
    assert config.segment_ms == 5
    assert config.min_cleanable_dirty_ratio == 0.25


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("retention.ms", "-2", "at least -1"),
        ("segment.bytes", "13", "at least 1048576"),
        ("cleanup.policy", "shred", "String must be one of: compact, delete"),
        ("compression.gzip.level", "0", "between 1 and 9 or equal to -1"),
        ("no.such.setting", "1", "Unknown topic config name: no.such.setting"),
    ],
)
def test_a_bad_value_is_refused_and_named(name: str, value: str, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        from_properties(LogConfig, {name: value}, "topic")
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert name in str(refused.value)


def test_a_small_segment_is_possible_for_tests() -> None:
    assert LogConfig(internal_segment_bytes=512).segment_size_max == 512
    assert LogConfig().segment_size_max == 1 << 30
