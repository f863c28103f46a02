"""Settings of a client metrics subscription: which clients push which metrics, and how often."""

import re
from collections.abc import Mapping

from moldau.config.schema import SettingGroup, setting
from moldau.config.values import HOUR_MS, INT, LIST, MINUTE_MS
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

INTERVAL_MIN_MS = 100
_MATCHED = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class ClientMetricsConfig(SettingGroup):
    interval_ms: int = setting(
        "interval.ms", INT, 5 * MINUTE_MS, "How often the clients push their metrics."
    )
    match: tuple[str, ...] = setting(
        "match",
        LIST,
        (),
        "The clients that the subscription is for, as property=pattern; empty means all.",
    )
    metrics: tuple[str, ...] = setting(
        "metrics", LIST, (), "Prefixes of the names of the metrics; * means all."
    )


def validate_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """Raises INVALID_REQUEST for the name, an unknown setting or the interval, and INVALID_CONFIG
    for other values, as Kafka does.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in overrides:
        if key not in ClientMetricsConfig.declared:
            detail = f"Unknown client metrics configuration: {key}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    declared = ClientMetricsConfig.declared
    values = {key: declared[key].parse(text) for key, text in overrides.items()}
    interval_ms = values.get("interval.ms", declared["interval.ms"].default)
    if not INTERVAL_MIN_MS <= interval_ms <= HOUR_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{INTERVAL_MIN_MS} and {HOUR_MS} (1 hour)",
        )
    for pattern in values.get("match", ()):
        _check_pattern(pattern)


def _check_pattern(text: str) -> None:
    name, _, pattern = text.partition("=")
    try:
        re.compile(pattern.strip())
        is_good = name.strip() in _MATCHED and pattern.count("=") == 0 and bool(pattern)
    except re.error:
        is_good = False
    if not is_good:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}")
